// Package schedule is hop 10 of 12: it gives every pending pod a node. It is a client among others: it reads pods, nodes
// and what else its plugins need from views, and writes bindings, conditions and events as system:kube-scheduler.
//
// # The parts
//
// A Snapshot is the cluster at one moment: a NodeInfo for each node, with the pods on it counted. It never changes. State
// makes the next one from the last and from what has changed; a pod that comes or goes costs the same in a cluster of any
// size. Decide is pure: a Snapshot, a pod and a Profile in, a Decision out, and a Decision says all that is needed to make
// it again. The Queue holds pods that wait, and knows for each rejected one which changes are worth another try. The loop
// joins them: take a pod, decide, assume that it is where it shall go, bind it in the background, take the next.
//
// # How to write a plugin
//
// A plugin is a value of type Plugin, made by a function that takes its arguments (see Fit and TaintToleration). Prepare
// compiles one pod against one Snapshot into a Prepared, whose closures are asked about nodes:
//
//   - Reject says that no node will do, Nodes that only those will; this is what upstream calls PreFilter.
//   - Filter says for a node why it will not do. A Verdict has one or more reasons, as users read them, and says whether
//     evicting pods could help. Make verdicts in Prepare or once for all: nothing may be allocated for each node.
//   - Score says how good a node is, at least 0; Normalize brings the scores of all nodes that fit into 0..MaxScore. Without
//     Normalize a score must be in that range already.
//   - Reserve, Unreserve, Permit, PreBind and PostBind are the steps of a pod that has a node. They are closures, so what
//     Prepare or Filter found out is at hand.
//
// The closures of a pod are called by one goroutine, so they may keep notes, and read the Snapshot alone (the objects
// behind Snapshot.Cluster are as of now, like a lister upstream). The steps are called by others, one after the other.
//
// # Equal pods
//
// Pods made from one template share their work, and Prepared.Reuse is what a plugin promises about it. The zero value
// promises nothing: the pod is worked out alone. WhileNode says that an answer about a node holds for equal pods until the
// Generation of the node changes; it is right for whatever reads only the pod and the NodeInfo. WhileTold says that the
// closures stay true if Update is called for every pod that comes to a node or leaves it; it is for plugins that count pods
// elsewhere. A plugin that has nothing to say about a pod returns Silent, not the zero Prepared. A kept Prepared is thrown
// away when nodes come, go or change their labels or taints, and when an object changes that unsettles it.
//
// Pods are equal when Shape says so: same namespace, labels, owner and all of the spec that plugins look at. A plugin that
// reads something else of a pod must not promise anything, or Shape must learn about it.
//
// # Waking pods up
//
// Wakes lists the changes that can make a pod fit which the plugin has rejected. What is not listed does not wake it until
// the five-minute flush, so a missing line costs a user five minutes, and a line too many costs the scheduler work.
package schedule
