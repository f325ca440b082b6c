package controller

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// DescribeConfigs answers from an image. It needs no state and may run on any
// goroutine.
func DescribeConfigs(
	opt Options, image *metadata.Image, req *kmsg.DescribeConfigsRequest,
) *kmsg.DescribeConfigsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	sources := Sources(opt.Static, opt.Self, image)
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		entries, err := describeResource(opt.Self, image, sources, r)
		out.ErrorCode, out.ErrorMessage = outcome(err)
		out.Configs = make([]kmsg.DescribeConfigsResponseResourceConfig, 0, len(entries))
		for j := range entries {
			if r.ConfigNames == nil || slices.Contains(r.ConfigNames, entries[j].Option.Name) {
				out.Configs = append(out.Configs, describeEntry(&entries[j], req))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func describeResource(
	self kafka.BrokerID, image *metadata.Image, sources config.Sources,
	r *kmsg.DescribeConfigsRequestResource,
) ([]config.Entry, *kafka.Error) {
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := metadata.CheckTopicName(r.ResourceName); err != nil {
			return nil, refuse(kafka.ErrInvalidTopicException, "%v", err)
		}
		t := image.Topic(r.ResourceName)
		if t == nil {
			return nil, refuse(kafka.ErrUnknownTopicOrPartition, "there is no topic %q", r.ResourceName)
		}
		return sources.DescribeTopic(t.Config), nil
	case kmsg.ConfigResourceTypeBroker:
		if r.ResourceName == "" {
			return sources.DescribeCluster(), nil
		}
		if r.ResourceName != strconv.Itoa(int(self)) {
			return nil, refuse(kafka.ErrInvalidRequest, "Unexpected broker id, expected %d or "+
				"empty string, but received %s: ask that broker", self, r.ResourceName)
		}
		return sources.DescribeBroker(), nil
	}
	return nil, noConfiguration(r.ResourceType)
}

func describeEntry(
	e *config.Entry, req *kmsg.DescribeConfigsRequest,
) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value, out.ReadOnly = e.Option.Name, e.Value, e.ReadOnly
	out.Source, out.IsDefault = kmsg.ConfigSource(e.Source), e.Source == config.DefaultConfig
	out.IsSensitive, out.ConfigType = e.Option.Sensitive, kmsg.ConfigType(e.Option.Type)
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			synonym := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			synonym.Name, synonym.Value, synonym.Source = s.Name, s.Value, kmsg.ConfigSource(s.Source)
			out.ConfigSynonyms = append(out.ConfigSynonyms, synonym)
		}
	}
	if req.IncludeDocumentation {
		out.Documentation = &e.Option.Doc
	}
	return out
}
