package schedule

// entryHeap is a heap of entries that know where they are.
type entryHeap struct {
	list []*Entry
	less func(a, b *Entry) bool
}

func (h *entryHeap) Len() int           { return len(h.list) }
func (h *entryHeap) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }
func (h *entryHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].at, h.list[j].at = i, j
}

// Push and Pop are for package heap alone.
func (h *entryHeap) Push(x any) {
	e := x.(*Entry)
	e.at = len(h.list)
	h.list = append(h.list, e)
}

func (h *entryHeap) Pop() any {
	last := len(h.list) - 1
	e := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	return e
}
