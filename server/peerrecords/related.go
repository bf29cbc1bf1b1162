package peerrecords

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/trace"
)

// write names a write: an object, and the revision that the write gave it. Revision 0 stands for all that is known of the object.
type write struct {
	UID types.UID `json:"uid"`
	Rev int64     `json:"rev,omitempty"`
}

// question is what a server wants to know: the records of writes and of what they caused, the writes of objects with a name, and the last
// writes of users.
type question struct {
	Objects []trace.Ref `json:"objects,omitempty"`
	Writes  []write     `json:"writes,omitempty"`
	// Recent is of how many objects the last write of a user is wanted: of those in Namespace, or of all if that is empty.
	Recent    int    `json:"recent,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Attempts are the Pods of which the last attempt to schedule them is wanted. Of several the nodes are left out.
	Attempts []types.UID `json:"attempts,omitempty"`
}

// search finds the records that belong to a question, the nearest first.
type search struct {
	records []hop.Record
	linked  map[write][]int // the records of a write, and those that it caused
	found   []int
	isFound map[int]bool
	// writes are those that the records found are about, each once; next is the first whose records were not looked for.
	writes []write
	known  map[write]bool
	next   int
}

// related returns the records that a question is about, at most limit, and the writes that these are about. It follows causes both ways,
// and every record of an object that was created because of another one.
func related(records []hop.Record, q *question, limit int) *search {
	s := &search{records: records, linked: make(map[write][]int, len(records)), isFound: map[int]bool{}, known: map[write]bool{}}
	for _, w := range q.Writes {
		s.want(w)
	}
	names := make(map[trace.Ref]bool, len(q.Objects))
	for _, o := range q.Objects {
		names[trace.Ref{Group: o.Group, Resource: o.Resource, Namespace: o.Namespace, Name: o.Name}] = true
	}
	for i := range records {
		r := &records[i]
		for _, w := range linksOf(r) {
			s.linked[w] = append(s.linked[w], i)
		}
		name := trace.Ref{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}
		if names[name] && r.IsWrite() && len(s.found) < limit {
			s.want(write{UID: r.UID})
			s.find(i)
		}
	}
	s.findRecent(q, limit)
	for ; s.next < len(s.writes); s.next++ {
		for _, i := range s.linked[s.writes[s.next]] {
			if len(s.found) >= limit {
				return s
			}
			s.find(i)
		}
	}
	return s
}

// findRecent finds the last writes of users, the newest first.
func (s *search) findRecent(q *question, limit int) {
	seen := map[trace.Ref]bool{}
	for i := len(s.records) - 1; i >= 0 && len(seen) < q.Recent && len(s.found) < limit; i-- {
		r := &s.records[i]
		name := trace.Ref{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}
		if !trace.IsByUser(r) || seen[name] || q.Namespace != "" && trace.NamespaceOf(name) != q.Namespace {
			continue
		}
		seen[name] = true
		s.want(write{UID: r.UID})
		s.find(i)
	}
}

// linksOf returns the writes under which a record is found.
func linksOf(r *hop.Record) (out []write) {
	if r.UID != "" {
		out = append(out, write{r.UID, 0})
		if r.Rev != 0 {
			out = append(out, write{r.UID, r.Rev})
		}
	}
	if r.CauseUID != "" && r.CauseUID != r.UID {
		out = append(out, write{r.CauseUID, 0})
	}
	if r.CauseUID != "" && r.CauseRev != 0 && (r.CauseUID != r.UID || r.CauseRev != r.Rev) {
		out = append(out, write{r.CauseUID, r.CauseRev})
	}
	return out
}

// find adds a record, and wants what it leads to.
func (s *search) find(i int) {
	if s.isFound[i] {
		return
	}
	s.isFound[i] = true
	s.found = append(s.found, i)
	r := &s.records[i]
	switch {
	case !r.IsWrite():
	case isCreate(r):
		s.want(write{UID: r.UID})
	case r.Rev != 0:
		s.want(write{r.UID, r.Rev})
	}
	s.want(write{r.CauseUID, r.CauseRev})
}

// want makes a note of a write whose records are to be found.
func (s *search) want(w write) {
	if w.UID == "" || s.known[w] || s.known[write{UID: w.UID}] {
		return
	}
	s.known[w] = true
	s.writes = append(s.writes, w)
}

// isCreate tells whether a write made its object; an apply may do so too.
func isCreate(r *hop.Record) bool {
	return r.Subresource == "" && (r.Verb == "create" || r.Verb == "patch" && r.Code == http.StatusCreated)
}
