// Package framework has what the engine of the scheduler and its plugins share: the Snapshot of the cluster with its
// NodeInfos and PodInfos, the State that makes snapshots, the Plugin interface, Rejections and Decisions. It knows
// neither the queue nor any plugin.
//
// A Snapshot is the cluster at one moment: a NodeInfo for each node, with the requests of its Pods summed up. It never
// changes. State makes the next snapshot from the last one and from what has changed; adding or removing a Pod costs
// the same in a cluster of any size.
//
// # How to write a plugin
//
// A plugin is a value of type Plugin, made by a function that takes its arguments (see plugins/basic for simple
// examples). Prepare evaluates one Pod against one Snapshot and returns a Prepared, whose functions are then called for
// nodes:
//
//   - Reject says that no node is suitable, Nodes restricts the choice to some nodes; upstream calls this PreFilter.
//   - Filter returns why a node is not suitable. A Rejection has one or more reasons, as users read them, and says
//     whether evicting Pods could help. Make rejections in Prepare or once for all Pods: Filter should not allocate.
//   - Score returns how good a node is, at least 0; Normalize maps the scores of all feasible nodes to 0..MaxScore.
//     Without Normalize a score must be in that range already.
//   - Reserve, Unreserve, Permit, PreBind and PostBind are called for a Pod that has a node. They are closures, so they
//     can use what Prepare or Filter has found out.
//
// Prepare, Filter, Score and Normalize of a Pod are called by one goroutine, so they may keep state. They may read only
// the Snapshot; the objects of Snapshot.Cluster are the current ones, like those of a lister upstream. The later
// functions are called by other goroutines, one after the other.
//
// # Equal Pods
//
// Pods of one template share their Prepared, and Prepared.Reuse says under which conditions. ReuseNever, the zero
// value, does not allow it. ReuseWhileNodeUnchanged says that the result for a node is valid for equal Pods until the
// Generation of the node changes; it is right for plugins that read only the Pod and the NodeInfo. ReuseWhileUpdated
// says that the functions stay valid if Update is called for every Pod that is added to a node or removed from it; it
// is for plugins that count Pods on other nodes. A plugin that does not apply to a Pod returns Skip(), not the zero
// Prepared. A Prepared is discarded when nodes are added or removed or change their labels or taints, and when an
// object changes that it may depend on.
//
// Pods are equal if they have the same Signature: namespace, labels, owner and the part of the spec that plugins read.
// A plugin that reads anything else of a Pod must not allow reuse, or Signature must include it.
//
// # Queueing hints
//
// QueueingHints lists the events that can make a Pod schedulable that the plugin has rejected. Other events do not wake
// the Pod; it is tried again after five minutes. A missing hint costs the user that time, a superfluous one costs the
// scheduler work.
package framework
