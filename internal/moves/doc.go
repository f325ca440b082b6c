// Package moves plans which replicas and leaders go to other brokers: so that a
// broker is left by all (Drain), topics have more replicas (Replicate), or brokers
// carry alike (Balance).
//
// A plan is computed from a Cluster, which is what anybody can learn from a cluster
// by asking it, and says for each partition that is to change which replicas it has
// and which it is to have. Nothing is carried out here: who asked shows the plan to
// people first. A plan that was carried out in part is computed anew from what there
// is then, so nothing has to be remembered to go on with it.
//
// It is a room of its own, and not a part of the command line or of the controller,
// because it is the part that can be wrong in ways that no example shows: the laws
// below are checked on random clusters. The controller places new partitions by a
// rule that knows nothing of sizes; what is there already is moved by people only.
//
// It may assume that brokers and partitions are named once, and that what moves
// already is given as it will be.
//
// Invariants of every plan:
//
//	no broker holds a partition twice; nothing goes to a broker that is not available
//	a partition keeps its number of replicas, but where the plan was asked to change it
//	a partition does not come to stand in fewer racks than before, unless a rack is left
//	each move changes something, and no partition is named twice
//	the plan for a cluster after the plan is empty
//
// It is pure: no time, no randomness; the same cluster has the same plan.
package moves
