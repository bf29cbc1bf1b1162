package answer

import "slices"

// DeepCopy returns a copy that shares nothing with the answer.
func (a *Answer) DeepCopy() *Answer {
	if a == nil {
		return nil
	}
	out := *a
	out.Evidence = slices.Clone(a.Evidence)
	for i := range out.Evidence {
		if at := out.Evidence[i].Time; at != nil {
			out.Evidence[i].Time = new(*at)
		}
	}
	out.Actions, out.Chain, out.Unseen = slices.Clone(a.Actions), slices.Clone(a.Chain), slices.Clone(a.Unseen)
	out.Nodes = CopyNodes(a.Nodes)
	out.Through = a.Through.DeepCopy()
	return &out
}

// CopyNodes returns a copy that shares nothing with the nodes.
func CopyNodes(nodes []NodeReason) []NodeReason {
	out := slices.Clone(nodes)
	for i := range out {
		if score := out[i].Score; score != nil {
			out[i].Score = new(*score)
		}
		out[i].Scores = slices.Clone(out[i].Scores)
	}
	return out
}
