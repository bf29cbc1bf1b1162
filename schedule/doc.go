// Package schedule is hop 10 of 12: the scheduler, which chooses a node for every pending Pod. It uses the API like any
// other client: it reads Pods, nodes and the objects that its plugins need from views, and writes bindings, conditions
// and Events as system:kube-scheduler.
//
// This package is the engine: it watches the cluster, takes Pods from the queue, decides, and binds in the background.
// Its parts are:
//
//   - framework: the snapshot of the cluster, the plugin interface, rejections and decisions. Its package comment
//     explains how to write a plugin.
//   - podqueue: the Pods that wait for a node, and which events make it worthwhile to try a rejected Pod again.
//   - plugins: the registry of plugins, and how a configuration selects those of a profile. The plugins themselves are
//     in the folders below it.
//   - eventseries: the event recorder of the scheduler.
//   - deviceallocator: allocates devices for ResourceClaims.
//
// The scheduling loop takes a Pod from the queue and a snapshot of the cluster, and calls decide, which is a pure
// function: the same snapshot, Pod, profile and seed give the same decision. Then the Pod is assumed on its node, so
// that it counts for the next decisions, and its binding is written in the background while the next Pod is decided.
package schedule
