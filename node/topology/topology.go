// Package topology has the CPU manager, the memory manager and the topology manager of the node: it decides which CPUs,
// and the memory of which NUMA nodes, a container gets, so that its resources are near each other. CPUs and Memory are
// allocators without I/O; merge combines their hints and those of devices; the Manager admits Pods with them and stores
// the state on disk.
package topology
