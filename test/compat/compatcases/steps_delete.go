package compatcases

import (
	"net/http"
	"net/url"

	"proa.dev/test/compat/answerdiff"
)

// deleteSteps end the life of objects in every way.
func (k *kindCase) deleteSteps() {
	name := k.objectName(first)
	del := func(label, object string, q url.Values, body func(*State) any) {
		k.add("delete "+label, "", func(s *State) *Call {
			c := &Call{Method: http.MethodDelete, path: k.path(object, ""), Query: q}
			if body != nil {
				c.Body = answerdiff.Encode(body(s))
			}
			return c
		})
	}
	options := func(pairs ...any) func(*State) any {
		return func(*State) any {
			o := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
			for i := 0; i+1 < len(pairs); i += 2 {
				o[pairs[i].(string)] = pairs[i+1]
			}
			return o
		}
	}
	del("missing", "no-such-object", nil, nil)
	del("dry run", name, dry(), nil)
	del("dry run in options", name, nil, options("dryRun", []any{"All"}))
	del("bad dry run", name, query("dryRun", "Some"), nil)
	del("other uid", name, nil, options("preconditions", map[string]any{"uid": "11111111-1111-1111-1111-111111111111"}))
	del("other resourceVersion", name, nil, options("preconditions", map[string]any{"resourceVersion": "1"}))
	del("bad propagation", name, query("propagationPolicy", "Sideways"), nil)
	del("propagation and orphan", name, nil, options("propagationPolicy", "Background", "orphanDependents", true))
	del("negative grace", name, query("gracePeriodSeconds", "-5", "dryRun", "All"), nil)
	del("bad grace", name, query("gracePeriodSeconds", "x"), nil)
	del("other kind of options", name, dry(), func(*State) any { return map[string]any{"apiVersion": "v1", "kind": "Pod"} })
	del("unknown option", name, nil, options("nonsense", 1, "dryRun", []any{"All"}))
	del("without options kind", name, nil, func(*State) any { return map[string]any{"dryRun": []any{"All"}} })
	// With options in the body those in the query do not count.
	del("options twice", k.objectName(second), query("dryRun", "All"), options("gracePeriodSeconds", 0))
	k.get("get after options twice", k.path(k.objectName(second), ""), "", nil)
	k.add("delete with broken body", "", func(*State) *Call {
		return &Call{Method: http.MethodDelete, path: k.path(name, ""), Body: []byte("{"), contentType: "application/json"}
	})
	k.finalizerSteps(del)
	k.foregroundSteps(del, options)
	k.collectionSteps()
	del("good uid", name, nil, func(s *State) any {
		return map[string]any{"preconditions": map[string]any{"uid": answerdiff.Text(s.object("first")["metadata"], "uid")}}
	})
	k.get("get deleted", k.path(name, ""), "", nil)
	del("again", name, nil, nil)
}

// finalizerSteps follow an object that a finalizer holds back.
func (k *kindCase) finalizerSteps(del func(string, string, url.Values, func(*State) any)) {
	name := k.objectName(finalized)
	o := k.minimal(finalized)
	o["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
	k.steps = append(k.steps, Step{Name: "create with finalizer", Must: true, Save: "held", Build: func(*State) *Call {
		return &Call{Method: http.MethodPost, path: k.path("", ""), Body: answerdiff.Encode(o)}
	}})
	del("held by finalizer", name, nil, nil)
	del("held again", name, nil, nil)
	k.add("get held", "held", func(*State) *Call { return &Call{Method: http.MethodGet, path: k.path(name, "")} })
	k.get("get held as Table", k.path(name, ""), asTable, nil)
	k.change("add finalizer to held", "held", "", nil, func(_, m map[string]any) {
		m["finalizers"] = []any{"example.com/hold", "example.com/more"}
	})
	k.change("update held", "held", "held", nil, func(_, m map[string]any) { set(m, "labels", "while", "held") })
	k.patchOf("release held", patchTarget{object: name}, jsonPatch, nil, `[{"op":"remove","path":"/metadata/finalizers"}]`)
	k.get("get released", k.path(name, ""), "", nil)
}

// foregroundSteps show what propagation leaves behind: no garbage collector
// runs, so finalizers stay.
func (k *kindCase) foregroundSteps(del func(string, string, url.Values, func(*State) any), options func(...any) func(*State) any) {
	name := k.objectName(graceful)
	k.steps = append(k.steps, Step{Name: "create for foreground deletion", Must: true, Build: func(*State) *Call {
		return &Call{Method: http.MethodPost, path: k.path("", ""), Body: answerdiff.Encode(k.minimal(graceful))}
	}})
	del("in the foreground", name, query("propagationPolicy", "Foreground"), nil)
	k.get("get in the foreground", k.path(name, ""), "", nil)
	del("orphaning after foreground", name, nil, options("propagationPolicy", "Orphan"))
	k.get("get orphaning", k.path(name, ""), "", nil)
	k.patchOf("release foreground", patchTarget{object: name}, mergePatch, nil, `{"metadata":{"finalizers":null}}`)
	k.get("get after release", k.path(name, ""), "", nil)
	if k.kind == "Pod" {
		del("of pod without grace", name, query("gracePeriodSeconds", "0"), nil)
	}
}

func (k *kindCase) collectionSteps() {
	if !k.can("deletecollection") {
		k.add("delete collection", "", func(*State) *Call {
			return &Call{Method: http.MethodDelete, path: k.path("", ""), Query: query("labelSelector", "compat=none")}
		})
		return
	}
	o := k.minimal(collected)
	set(o["metadata"].(map[string]any), "labels", "collect", "me")
	k.post("create for collection", nil, o)
	collection := func(label string, q url.Values, body string) {
		k.add("delete collection "+label, "", func(*State) *Call {
			c := &Call{Method: http.MethodDelete, path: k.path("", ""), Query: q}
			if body != "" {
				c.Body = []byte(body)
			}
			return c
		})
	}
	collection("dry run", query("labelSelector", "collect=me", "dryRun", "All"), "")
	collection("of nothing", query("labelSelector", "collect=nothing"), "")
	collection("bad selector", query("labelSelector", "a b"), "")
	collection("bad field", query("labelSelector", "collect=me", "fieldSelector", "spec.nonsense=x"), "")
	collection("with options", query("labelSelector", "collect=me"), `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`)
	k.get("list after delete collection", k.path("", ""), "", query("labelSelector", "collect=me"))
}
