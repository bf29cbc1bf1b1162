package trace

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

// version names one write: an object, and the revision that the write gave it.
type version struct {
	uid types.UID
	rev int64
}

// Index finds records by their object and by their cause. It reads the records that it was made of and never changes them.
type Index struct {
	records  []*hop.Record // by start, and by revision
	writes   map[version]int
	ofUID    map[types.UID][]int
	ofName   map[Ref][]int // the writes, also refused ones, which have no UID
	causedBy map[version][]int
	session  map[session]time.Time // when the first request of a session of kubectl began
}

// session is a session of kubectl. Nobody checks its name, so that of another user is another one.
type session struct{ user, name string }

func sessionOf(r *hop.Record) session { return session{r.User, r.Origin.Session} }

// NewIndex makes an index of records, in whatever order they are. The same record from two sources counts once.
func NewIndex(records []hop.Record) *Index {
	x := &Index{
		records: make([]*hop.Record, 0, len(records)), writes: map[version]int{}, ofUID: map[types.UID][]int{}, ofName: map[Ref][]int{},
		causedBy: map[version][]int{}, session: map[session]time.Time{},
	}
	known := make(map[recordKey]int, len(records))
	for i := range records {
		r := &records[i]
		if at, again := known[keyOf(r)]; !again {
			known[keyOf(r)] = len(x.records)
			x.records = append(x.records, r)
		} else if x.records[at].Open {
			x.records[at] = r // the newer state of the same work
		}
	}
	slices.SortStableFunc(x.records, func(a, b *hop.Record) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Rev, b.Rev)) })
	for i, r := range x.records {
		if r.UID != "" {
			x.ofUID[r.UID] = append(x.ofUID[r.UID], i)
		}
		if r.CauseUID != "" {
			x.causedBy[cause(r)] = append(x.causedBy[cause(r)], i)
		}
		if !isWrite(r) {
			continue
		}
		x.ofName[refOf(r).withoutUID()] = append(x.ofName[refOf(r).withoutUID()], i)
		if o := r.Origin; o != nil && o.Session != "" {
			began := r.Start
			if !o.Began.IsZero() {
				began = o.Began
			}
			if first, known := x.session[sessionOf(r)]; !known || began.Before(first) {
				x.session[sessionOf(r)] = began
			}
		}
		v := version{r.UID, r.Rev}
		if _, known := x.writes[v]; !known && r.UID != "" && r.Rev != 0 {
			x.writes[v] = i // an update that changes nothing has the revision of the write before it
		}
	}
	return x
}

// recordKey tells pieces of work apart.
type recordKey struct {
	version
	start                                            int64
	verb, resource, subresource, name, user, process string
}

func keyOf(r *hop.Record) recordKey {
	return recordKey{version{r.UID, r.Rev}, r.Start.UnixNano(), r.Verb, r.Resource, r.Subresource, r.Name, r.User, r.Process}
}

func cause(r *hop.Record) version { return version{r.CauseUID, r.CauseRev} }

func refOf(r *hop.Record) Ref {
	return Ref{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name, UID: r.UID}
}

func (r Ref) withoutUID() Ref {
	r.UID = ""
	return r
}

// isWrite tells a write from other work.
func isWrite(r *hop.Record) bool {
	switch r.Verb {
	case hop.Deliver, hop.Reconcile, hop.ScheduleAttempt, hop.Program, hop.Answer, hop.Receive, hop.Volumes, hop.Sandbox, hop.PodNetwork,
		hop.Pull, hop.Container, hop.Probe, hop.Stop:
		return false
	}
	return true
}

// isCreate tells whether a write made its object; an apply may do so too.
func isCreate(r *hop.Record) bool {
	return r.Subresource == "" && (r.Verb == "create" || r.Verb == "patch" && r.Code == codeCreated)
}

// isBinding tells whether a write bound a Pod to a node.
func isBinding(r *hop.Record) bool {
	return r.Verb == "create" && r.Group == "" && r.Resource == "pods" && r.Subresource == "binding" && !isFailed(r)
}

// The codes of answers that mean something here.
const (
	codeCreated      = 201
	codeUnauthorized = 401
)

// isUnauthorized tells whether a write was refused because its user may not make it.
func isUnauthorized(r *hop.Record) bool {
	return r.Refused == hop.Authenticate || r.Refused == hop.Authorize || r.Code == codeUnauthorized
}

// isFailed tells whether a write was refused, or other work has failed.
func isFailed(r *hop.Record) bool { return r.Error != "" || r.Code >= 400 }

// isByUser tells whether somebody outside of the system made a write, and nothing that the records know of caused it.
func isByUser(r *hop.Record) bool { return isWrite(r) && r.CauseUID == "" && !isComponent(r.User) }

// isComponent tells whether a user is a part of the system, which writes because of something that happened.
func isComponent(user string) bool {
	return user == "" || user == "system:kube-scheduler" || user == "system:kube-controller-manager" || user == "system:apiserver" ||
		strings.HasPrefix(user, nodePrefix) || strings.HasPrefix(user, controllerPrefix)
}

// The beginnings of the names of nodes, of service accounts and of controllers.
const (
	nodePrefix       = "system:node:"
	accountPrefix    = "system:serviceaccount:"
	controllerPrefix = accountPrefix + "kube-system:"
)

// isSameActor tells whether two records are of the same actor: a controller writes as its service account, and its other work has its
// name alone.
func isSameActor(a, b *hop.Record) bool {
	return strings.TrimPrefix(a.User, controllerPrefix) == strings.TrimPrefix(b.User, controllerPrefix)
}

// root follows the causes of a record back to the first one that is known. memo has what earlier calls have found.
func (x *Index) root(i int, memo map[int]int) int {
	var way []int
	seen := map[int]bool{}
	at := i
	for !seen[at] {
		if found, known := memo[at]; known {
			at = found
			break
		}
		seen[at] = true
		way = append(way, at)
		next, known := x.writes[cause(x.records[at])]
		if !known {
			break
		}
		at = next
	}
	for _, w := range way {
		memo[w] = at
	}
	return at
}
