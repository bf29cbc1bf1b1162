// Package topology decides which processors, and the memory of which NUMA nodes, a container gets, so that what it uses is near
// each other. Its parts are pure allocators (CPUs, Memory) and a merge of what they and devices could give; a Manager admits
// Pods with them and keeps their state on disk.
package topology
