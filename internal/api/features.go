package api

import "github.com/twmb/franz-go/pkg/kmsg"

// Features of the cluster (KIP-584), which clients decide by. There is one so far:
// transactions of version 2 (KIP-890), with which a client leaves it to brokers to add
// partitions to its transaction, and gets another epoch with each of them.
const (
	transactionVersion    = "transaction.version"
	transactionVersionMax = 2
)

// featuresEpoch is the epoch of the features' levels, which do not change.
const featuresEpoch = 1

// firstWithZero is the first version of ApiVersions whose clients can read of a
// supported feature that begins at level 0 (KIP-1022).
const firstWithZero = 4

// announceFeatures tells the features. Versions of ApiVersions without them leave
// them out.
func announceFeatures(resp *kmsg.ApiVersionsResponse) {
	if resp.Version >= firstWithZero {
		supported := kmsg.NewApiVersionsResponseSupportedFeature()
		supported.Name, supported.MaxVersion = transactionVersion, transactionVersionMax
		resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
	}
	finalized := kmsg.NewApiVersionsResponseFinalizedFeature()
	finalized.Name = transactionVersion
	finalized.MinVersionLevel, finalized.MaxVersionLevel = transactionVersionMax, transactionVersionMax
	resp.FinalizedFeaturesEpoch = featuresEpoch
	resp.FinalizedFeatures = append(resp.FinalizedFeatures, finalized)
}
