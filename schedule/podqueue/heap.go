package podqueue

// entryHeap is a heap of entries, which have their index in the heap.
type entryHeap struct {
	list []*Entry
	less func(a, b *Entry) bool
}

func (h *entryHeap) Len() int           { return len(h.list) }
func (h *entryHeap) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }
func (h *entryHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].heapIndex, h.list[j].heapIndex = i, j
}

// Push is called by package heap only, as is Pop.
func (h *entryHeap) Push(x any) {
	e := x.(*Entry)
	e.heapIndex = len(h.list)
	h.list = append(h.list, e)
}

func (h *entryHeap) Pop() any {
	last := len(h.list) - 1
	e := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	return e
}
