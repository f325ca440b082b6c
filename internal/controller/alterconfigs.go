package controller

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// AlterConfigs decides about configurations that are to be replaced as a whole.
func (s *State) AlterConfigs(
	req *kmsg.AlterConfigsRequest,
) (*kmsg.AlterConfigsResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	seen := map[metadata.Resource]bool{}
	var records []metadata.Record
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		record, err := s.replaceConfig(r, seen)
		out.ErrorCode, out.ErrorMessage = outcome(err)
		if err == nil && record != nil && !req.ValidateOnly {
			records = append(records, record)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, s.minInSyncChanged(records)
}

// IncrementalAlterConfigs decides about configurations of which single values are
// to change (KIP-339).
func (s *State) IncrementalAlterConfigs(
	req *kmsg.IncrementalAlterConfigsRequest,
) (*kmsg.IncrementalAlterConfigsResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	seen := map[metadata.Resource]bool{}
	var records []metadata.Record
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		record, err := s.changeConfig(r, seen)
		out.ErrorCode, out.ErrorMessage = outcome(err)
		if err == nil && record != nil && !req.ValidateOnly {
			records = append(records, record)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, s.minInSyncChanged(records)
}

func (s *State) replaceConfig(
	req *kmsg.AlterConfigsRequestResource, seen map[metadata.Resource]bool,
) (*metadata.ConfigChanged, *kafka.Error) {
	r, err := s.resource(req.ResourceType, req.ResourceName, seen)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string, len(req.Configs))
	for _, c := range req.Configs {
		if _, twice := values[c.Name]; twice {
			return nil, refuse(kafka.ErrInvalidRequest, "%s is in the request twice: give it one "+
				"value", c.Name)
		}
		if c.Value == nil {
			return nil, refuse(kafka.ErrInvalidRequest, "Null value not supported for : %s. "+
				"Leave the option out for the default", c.Name)
		}
		values[c.Name] = strings.TrimSpace(*c.Value)
	}
	return s.settle(r, values)
}

func (s *State) changeConfig(
	req *kmsg.IncrementalAlterConfigsRequestResource, seen map[metadata.Resource]bool,
) (*metadata.ConfigChanged, *kafka.Error) {
	r, err := s.resource(req.ResourceType, req.ResourceName, seen)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	maps.Copy(values, s.image.Config(r))
	changed := map[string]bool{}
	for i := range req.Configs {
		c := &req.Configs[i]
		if changed[c.Name] {
			return nil, refuse(kafka.ErrInvalidRequest, "%s is in the request twice: change it "+
				"once", c.Name)
		}
		changed[c.Name] = true
		if err := s.changeValue(r, values, c); err != nil {
			return nil, err
		}
	}
	return s.settle(r, values)
}

// changeValue carries out one operation on a resource's own values.
func (s *State) changeValue(
	r metadata.Resource, values map[string]string,
	c *kmsg.IncrementalAlterConfigsRequestResourceConfig,
) *kafka.Error {
	if c.Op == kmsg.IncrementalAlterConfigOpDelete {
		// A value that no version of now would take may always go.
		if _, set := values[c.Name]; !set && config.Known(scopeOf(r), c.Name) != nil {
			return refuse(kafka.ErrInvalidConfig, "%v", config.Known(scopeOf(r), c.Name))
		}
		delete(values, c.Name)
		return nil
	}
	if c.Value == nil {
		return refuse(kafka.ErrInvalidRequest, "Null value not supported for : %s. Delete the "+
			"option for the default", c.Name)
	}
	switch c.Op {
	case kmsg.IncrementalAlterConfigOpSet:
		values[c.Name] = strings.TrimSpace(*c.Value)
		return nil
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
		return s.changeList(r, values, c)
	}
	return refuse(kafka.ErrInvalidRequest, "there is no operation %d on a configuration", c.Op)
}

// changeList adds items to a list or takes them out. A list that was not set
// begins as its default, as in Kafka.
func (s *State) changeList(
	r metadata.Resource, values map[string]string,
	c *kmsg.IncrementalAlterConfigsRequestResourceConfig,
) *kafka.Error {
	if err := config.Known(scopeOf(r), c.Name); err != nil {
		return refuse(kafka.ErrInvalidConfig, "%v", err)
	}
	o, _ := config.Lookup(scopeOf(r), c.Name)
	if o.Type != config.List {
		return refuse(kafka.ErrInvalidConfig, "items can be added to a list and taken out of "+
			"one, and %s is a %v: set it", c.Name, o.Type)
	}
	text, set := values[c.Name]
	if !set {
		text = s.defaultText(r, o)
	}
	items := config.SplitList(text)
	for _, item := range config.SplitList(*c.Value) {
		if c.Op == kmsg.IncrementalAlterConfigOpSubtract {
			items = slices.DeleteFunc(items, func(have string) bool { return have == item })
		} else if !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	values[c.Name] = strings.Join(items, ",")
	return nil
}

// defaultText is an option's value where the resource has none of its own.
func (s *State) defaultText(r metadata.Resource, o *config.Option) string {
	sources := Sources(s.opt.Static, s.opt.Self, s.image)
	entries := sources.DescribeBroker
	if r.Type == metadata.TopicResource {
		entries = func() []config.Entry { return sources.DescribeTopic(nil) }
	}
	for _, e := range entries() {
		if e.Option == o && e.Value != nil {
			return *e.Value
		}
	}
	return ""
}

// settle checks the values that a resource is to have and returns the record that
// leads there, nil when nothing changes.
func (s *State) settle(
	r metadata.Resource, values map[string]string,
) (*metadata.ConfigChanged, *kafka.Error) {
	old := s.image.Config(r)
	record := &metadata.ConfigChanged{Resource: r, Set: map[string]string{}}
	for name, value := range values {
		if was, ok := old[name]; !ok || was != value {
			record.Set[name] = value
		}
	}
	for name := range old {
		if _, ok := values[name]; !ok {
			record.Remove = append(record.Remove, name)
		}
	}
	slices.Sort(record.Remove)
	if err := s.checkValues(r, record.Set, values); err != nil {
		return nil, err
	}
	if len(record.Set)+len(record.Remove) == 0 {
		return nil, nil
	}
	return record, nil
}

func (s *State) checkValues(r metadata.Resource, set, values map[string]string) *kafka.Error {
	if r.Type == metadata.TopicResource {
		if err := config.ValidateTopic(s.broker, values); err != nil {
			return refuse(kafka.ErrInvalidConfig, "%v", err)
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if err := config.Validate(config.BrokerScope, name, set[name]); err != nil {
			return refuse(kafka.ErrInvalidConfig, "%v", err)
		}
		o, _ := config.Lookup(config.BrokerScope, name)
		switch {
		case o.Update == config.ReadOnly:
			return refuse(kafka.ErrInvalidRequest, "Cannot update these configs dynamically: %s. "+
				"Set it where the broker is started, and start it again", name)
		case o.Update == config.PerBroker && r.Name == "":
			return refuse(kafka.ErrInvalidRequest, "%s can be set for one broker at a time only: "+
				"name the broker",
				name)
		}
	}
	sources := Sources(s.opt.Static, s.opt.Self, s.image)
	if r.Name == "" {
		sources.ClusterDynamic = values
	} else {
		sources.BrokerDynamic = values
	}
	if _, err := sources.Broker(); err != nil {
		return refuse(kafka.ErrInvalidConfig, "%v", err)
	}
	return nil
}

// resource checks what a request names and that it does so once.
func (s *State) resource(
	kind kmsg.ConfigResourceType, name string, seen map[metadata.Resource]bool,
) (metadata.Resource, *kafka.Error) {
	r := metadata.Resource{Type: metadata.ResourceType(kind), Name: name}
	if seen[r] {
		return r, refuse(kafka.ErrInvalidRequest, "the request names a resource twice: name it "+
			"once")
	}
	seen[r] = true
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := metadata.CheckTopicName(name); err != nil {
			return r, refuse(kafka.ErrInvalidTopicException, "%v", err)
		}
		if s.image.Topic(name) == nil {
			return r, refuse(kafka.ErrUnknownTopicOrPartition, "there is no topic %q", name)
		}
		return r, nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return r, nil
		}
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || strconv.FormatInt(id, 10) != name {
			return r, refuse(kafka.ErrInvalidRequest, "broker %q is no number: name a broker by "+
				"its id, or none for all of them", name)
		}
		if _, ok := s.image.Broker(kafka.BrokerID(id)); !ok {
			return r, refuse(kafka.ErrInvalidRequest, "there is no broker %d", id)
		}
		return r, nil
	}
	return r, noConfiguration(kind)
}

// noConfiguration refuses a type of resource.
func noConfiguration(kind kmsg.ConfigResourceType) *kafka.Error {
	return refuse(kafka.ErrInvalidRequest, "nothing of type %v has a configuration here: name "+
		"topics or brokers",
		kind)
}

func scopeOf(r metadata.Resource) config.Scope {
	if r.Type == metadata.TopicResource {
		return config.TopicScope
	}
	return config.BrokerScope
}
