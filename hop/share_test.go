package hop

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

const shareLimit = 4096

// newRecorder returns a recorder in which no two of the users and namespaces of these tests have one share by chance.
func newRecorder() *Recorder {
	names := []string{"", "default", "shop", "crowd", "alice", "bob", "mallory", "admin", "somebody", "system:serviceaccount:n",
		"system:node:liar", "system:node:node-0", "system:node:n1", "system:node:n2", "deployment", "kube-scheduler", "system:kube-scheduler",
		"system:serviceaccount:kube-system:deployment-controller", "system:serviceaccount:kube-system:replicaset-controller",
		"system:serviceaccount:kube-system:cronjob"}
	for {
		r, lists := NewRecorder(shareLimit), map[uint32]bool{}
		for _, name := range names {
			lists[r.main.listOf(&r.main.groupings[1], name)%bodyUsers] = true
		}
		if len(lists) == len(names) {
			return r
		}
	}
}

// by returns the record of a write that a client has sent.
func by(user string, uid types.UID, namespace string) Record {
	return Record{UID: uid, Rev: 1, Verb: "create", Resource: "deployments", Namespace: namespace, User: user, Code: 201, Origin: &Origin{}}
}

// rollout adds the records of a Deployment: the request of a client, and what controllers, the scheduler and a node did because of it.
func rollout(r *Recorder, request Record, node string) {
	r.Add(request)
	follow := func(user, verb string, uid, cause types.UID) {
		rec := Record{UID: uid, Rev: 1, Verb: verb, Namespace: request.Namespace, User: user, CauseUID: cause, CauseRev: 1}
		if rec.isByNode() && rec.IsWrite() {
			rec.Origin, rec.CauseUID, rec.CauseRev = &Origin{}, "", 0
		}
		r.Add(rec)
	}
	set := request.UID + "-set"
	follow("deployment", Reconcile, request.UID, request.UID)
	follow("system:serviceaccount:kube-system:deployment-controller", "create", set, request.UID)
	for i := range 4 {
		pod := types.UID(fmt.Sprint(request.UID, "-pod-", i))
		follow("system:serviceaccount:kube-system:replicaset-controller", "create", pod, set)
		follow("kube-scheduler", ScheduleAttempt, pod, pod)
		follow("system:kube-scheduler", "create", pod, pod)
		follow("system:node:"+node, "update", pod, "")
		follow("somebody", Deliver, pod, pod)
		follow("system:node:"+node, "update", pod, "")
		follow("system:node:"+node, Pull, pod, pod)
	}
}

// TestOneClientLeavesRoomForOthers checks that nobody pushes out the records of others, in however many namespaces he writes, by whatever
// names, and whatever parts of the cluster do because of it.
func TestOneClientLeavesRoomForOthers(t *testing.T) {
	floods := map[string]func(r *Recorder, i int){
		"writes in many namespaces": func(r *Recorder, i int) {
			r.Add(by("mallory", types.UID(fmt.Sprint("m", i)), fmt.Sprint("n", i%16)))
		},
		"writes of many service accounts of one namespace": func(r *Recorder, i int) {
			r.Add(by(fmt.Sprint("system:serviceaccount:n:", i), types.UID(fmt.Sprint("m", i)), fmt.Sprint("n", i%16)))
		},
		"rollouts in many namespaces, on many nodes": func(r *Recorder, i int) {
			rollout(r, by("mallory", types.UID(fmt.Sprint("m", i)), fmt.Sprint("n", i%16)), fmt.Sprint("node-", i%8))
		},
		"one node that writes the statuses of many Pods of the same user": func(r *Recorder, i int) {
			pod := types.UID(fmt.Sprint("p", i%200))
			if i < 200 {
				r.Add(by("alice", pod, fmt.Sprint("n", i%16)))
			}
			rec := by("system:node:liar", pod, fmt.Sprint("n", i%16))
			rec.Verb, rec.Rev = "update", int64(i+2)
			r.Add(rec)
		},
		"rollouts in many namespaces, on the same node": func(r *Recorder, i int) {
			rollout(r, by("mallory", types.UID(fmt.Sprint("m", i)), fmt.Sprint("n", i%16)), "node-0")
		},
	}
	for what, flood := range floods {
		t.Run(what, func(t *testing.T) {
			r := newRecorder()
			rollout(r, by("alice", "web", "shop"), "node-0")
			written := r.Len()
			for i := range 4 * shareLimit {
				flood(r, i)
			}
			if got := r.Select(func(x *Record) bool { return x.Namespace == "shop" }); len(got) != written {
				t.Errorf("%d of %d records of another user are kept", len(got), written)
			}
			last := r.Len()
			flood(r, 4*shareLimit)
			if got := r.Len(); got != last || got < shareLimit {
				t.Errorf("%d records, and %d after one more", last, got)
			}
		})
	}
}

// TestOneClientHasTheWholeHistory checks that records of the only client, and of what he caused, make room by their age alone.
func TestOneClientHasTheWholeHistory(t *testing.T) {
	r := newRecorder()
	for i := range shareLimit {
		rollout(r, by("admin", types.UID(fmt.Sprint(i)), "default"), "node-0")
	}
	if r.main.count != shareLimit {
		t.Errorf("%d records", r.main.count)
	}
	whole := 0
	for i := shareLimit - 1; len(r.Of(types.UID(fmt.Sprint(i)))) > 0; i-- {
		if n := len(r.Of(types.UID(fmt.Sprint(i, "-pod-3")))); n == 7 {
			whole++
		}
	}
	if want := shareLimit / 27; whole < want*9/10 {
		t.Errorf("the last %d rollouts are there as a whole, want %d", whole, want)
	}
}

// TestRecordsCountForTheClientThatCausedThem checks to whom what follows from a write belongs.
func TestRecordsCountForTheClientThatCausedThem(t *testing.T) {
	r := newRecorder()
	rollout(r, by("alice", "web", "shop"), "node-0")
	rollout(r, by("bob", "other", "shop"), "node-0")
	r.Add(Record{UID: "unknown", Rev: 1, Verb: "update", User: "system:serviceaccount:kube-system:cronjob", CauseUID: "gone"})
	h := &r.main
	clients := slices.IndexFunc(h.groupings, func(g grouping) bool { return g.groupBy == byClient })
	g := &h.groupings[clients]
	alice, bob := g.lists[h.listOf(g, "alice")].count, g.lists[h.listOf(g, "bob")].count
	if alice != 27 || bob != 27 || r.Len() != 63 {
		t.Errorf("alice has %d records and bob %d, of %d", alice, bob, r.Len())
	}
}

// TestOthersGetRoomWhileOneClientWritesAllTheTime checks that whoever writes little gets his share of a history that is full already, also
// of one namespace with all records.
func TestOthersGetRoomWhileOneClientWritesAllTheTime(t *testing.T) {
	for what, namespace := range map[string]string{"one namespace": "default", "two namespaces": "shop"} {
		r := newRecorder()
		for i := range 8 * shareLimit {
			if r.Add(by("mallory", types.UID(fmt.Sprint("m", i)), "default")); i%16 == 0 {
				r.Add(by("alice", types.UID(fmt.Sprint("a", i)), namespace))
			}
		}
		if n := len(r.Select(func(x *Record) bool { return x.User == "alice" })); n < shareLimit/4 {
			t.Errorf("%s: %d records of the user who writes little, want at least %d", what, n, shareLimit/4)
		}
	}
}

// TestLyingNodeLeavesTheWorkOfOthers checks that a node which reports all the time pushes out its own work only, though all of it is on
// Pods of the same user as that of other nodes.
func TestLyingNodeLeavesTheWorkOfOthers(t *testing.T) {
	r := newRecorder()
	work := func(node string, i int) {
		pod := types.UID(fmt.Sprint("p", i%100))
		r.Add(by("admin", pod, "default"))
		r.Add(Record{UID: pod, Rev: int64(i), Verb: Pull, Namespace: "default", User: "system:node:" + node, CauseUID: pod})
	}
	for i := range shareLimit {
		work(fmt.Sprint("node-", i%2), i)
	}
	for i := range 4 * shareLimit {
		work("liar", i)
	}
	liar := len(r.Select(func(x *Record) bool { return x.User == "system:node:liar" }))
	if all := r.nodes.count; all != shareLimit/4 || liar > all/2 {
		t.Errorf("%d of %d records of nodes are of the one that lies", liar, all)
	}
}
