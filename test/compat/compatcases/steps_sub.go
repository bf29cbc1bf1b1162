package compatcases

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"proa.dev/test/compat/answerdiff"
)

// subSteps exercise the subresources that every kind may have.
func (k *kindCase) subSteps() {
	name := k.objectName(first)
	for _, sub := range k.subs {
		switch sub {
		case "status", "scale", "approval", "ephemeralcontainers", "resize":
			k.get("get "+sub, k.path(name, sub), "", nil)
			k.get("get "+sub+" as Table", k.path(name, sub), asTable, nil)
			k.get("get "+sub+" of missing", k.path("no-such-object", sub), "", nil)
			k.patchOf("merge patch of "+sub+" metadata", patchTarget{object: name, sub: sub}, mergePatch, dry(), `{"metadata":{"labels":{"through":"sub"},"annotations":{"through":"sub"}}}`)
			k.patchOf("json patch of "+sub+" with bad path", patchTarget{object: name, sub: sub}, jsonPatch, dry(),
				`[{"op":"remove","path":"/nonsense"}]`)
			k.add("delete "+sub, "", func(*State) *Call { return &Call{Method: http.MethodDelete, path: k.path(name, sub)} })
			k.add("post to "+sub, "", func(*State) *Call {
				return &Call{Method: http.MethodPost, path: k.path(name, sub), Body: answerdiff.Encode(k.minimal(first))}
			})
		}
	}
	if slices.Contains(k.subs, "status") {
		k.statusSteps()
	}
	if slices.Contains(k.subs, "scale") {
		k.scaleSteps()
	}
}

// statusSteps write status: as a whole, field by field, and together with what
// a status write must not touch.
func (k *kindCase) statusSteps() {
	name := k.objectName(first)
	put := func(label string, change func(o map[string]any)) {
		k.add("status "+label, "", func(s *State) *Call {
			o := s.object("first")
			delete(o["metadata"].(map[string]any), "resourceVersion")
			change(o)
			return &Call{Method: http.MethodPut, path: k.path(name, "status"), Query: dry(), Body: answerdiff.Encode(o)}
		})
	}
	put("update without change", func(map[string]any) {})
	put("update with labels", func(o map[string]any) { set(o["metadata"].(map[string]any), "labels", "through", "status") })
	put("update with old resourceVersion", func(o map[string]any) { o["metadata"].(map[string]any)["resourceVersion"] = "1" })
	put("update with no status", func(o map[string]any) { delete(o, "status") })
	put("update with wrong type", func(o map[string]any) { o["status"] = "x" })
	put("update with unknown field", func(o map[string]any) { o["status"] = map[string]any{"nonsense": 1} })
	if k.full == nil {
		return
	}
	put("update with the full example", func(o map[string]any) { o["status"] = answerdiff.CopyTree(k.full["status"]) })
	put("update with spec of the full example", func(o map[string]any) { o["spec"] = answerdiff.CopyTree(k.full["spec"]) })
	for _, p := range answerdiff.Paths(k.full, 6) {
		if p[0] != "status" || len(p) == 1 {
			continue
		}
		put("field "+answerdiff.PathText(p), func(o map[string]any) { answerdiff.Graft(o, k.full, p, nil) })
		if _, isNumber := answerdiff.At(k.full, p).(fmt.Stringer); isNumber {
			put("field "+answerdiff.PathText(p)+" negative", func(o map[string]any) { answerdiff.Graft(o, k.full, p, -1) })
		}
	}
	k.add("apply status", "", func(*State) *Call {
		body := map[string]any{"apiVersion": k.apiVersion(), "kind": k.kind, "metadata": map[string]any{"name": name},
			"status": k.full["status"]}
		return &Call{Method: http.MethodPatch, path: k.path(name, "status"), Query: dry("fieldManager", "status-one", "force", "true"),
			contentType: applyYAML, Body: answerdiff.Encode(body)}
	})
	k.patchOf("strategic patch of status", patchTarget{object: name, sub: "status"}, strategic, dry(),
		string(answerdiff.Encode(map[string]any{"status": k.full["status"]})))
}

func (k *kindCase) scaleSteps() {
	name := k.objectName(first)
	scale := func(replicas any, more ...any) map[string]any {
		o := map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale",
			"metadata": map[string]any{"name": name, "namespace": k.namespace}, "spec": map[string]any{"replicas": replicas}}
		for i := 0; i+1 < len(more); i += 2 {
			o["metadata"].(map[string]any)[more[i].(string)] = more[i+1]
		}
		return o
	}
	put := func(label string, body any) {
		k.add("scale "+label, "", func(*State) *Call {
			return &Call{Method: http.MethodPut, path: k.path(name, "scale"), Body: answerdiff.Encode(body), Query: dry()}
		})
	}
	put("to 3", scale(3))
	put("to -1", scale(-1))
	put("to a string", scale("x"))
	put("with other name", scale(3, "name", "other"))
	put("with old resourceVersion", scale(3, "resourceVersion", "1"))
	put("with other uid", scale(3, "uid", "11111111-1111-1111-1111-111111111111"))
	put("with the wrong kind", k.minimal(first))
	put("with nothing", map[string]any{})
	k.patchOf("scale by merge patch", patchTarget{object: name, sub: "scale"}, mergePatch, nil, `{"spec":{"replicas":2}}`)
	k.patchOf("scale by json patch", patchTarget{object: name, sub: "scale"}, jsonPatch, dry(),
		`[{"op":"replace","path":"/spec/replicas","value":4}]`)
	k.patchOf("scale by strategic patch", patchTarget{object: name, sub: "scale"}, strategic, dry(), `{"spec":{"replicas":5}}`)
	k.patchOf("scale by apply", patchTarget{object: name, sub: "scale"}, applyYAML, query("fieldManager", "scaler"),
		string(answerdiff.Encode(map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"replicas": 2}})))
	k.get("get after scale", k.path(name, ""), "", nil)
	k.patchOf("scale of missing", patchTarget{object: "no-such-object", sub: "scale"}, mergePatch, nil, `{"spec":{"replicas":2}}`)
}

// handSteps send the hand-written cases of the kind.
func (k *kindCase) handSteps() {
	for i, c := range k.corpus.cases[k.key()] {
		label := cmp.Or(c.Name, fmt.Sprintf("%d", i+1))
		q := dry()
		if c.Store || !k.can("get") {
			q = nil
		}
		name := k.objectName(first)
		expand := func(v any) any { return k.expand(v) }
		switch {
		case c.Create != nil:
			n := fresh
			if c.Store {
				n = 20 + i
			}
			k.post("case "+label, q, Merge(k.minimal(n), expand(c.Create)))
		case c.Update != nil:
			k.change("case "+label, "first", "", q, func(o, m map[string]any) { delete(m, "resourceVersion"); Merge(o, expand(c.Update)) })
		case c.Status != nil:
			k.add("case "+label, "", func(s *State) *Call {
				o := s.object("first")
				delete(o["metadata"].(map[string]any), "resourceVersion")
				return &Call{Method: http.MethodPut, path: k.path(name, "status"), Query: q,
					Body: answerdiff.Encode(Merge(o, expand(c.Status)))}
			})
		case c.Post != nil:
			k.add("case "+label, "", func(*State) *Call {
				return &Call{Method: http.MethodPost, path: k.path(cmp.Or(c.With, name), c.Sub), Query: q,
					Body: answerdiff.Encode(expand(c.Post))}
			})
		case c.Put != nil:
			k.add("case "+label, "", func(s *State) *Call {
				o := s.object("first")
				delete(o["metadata"].(map[string]any), "resourceVersion")
				return &Call{Method: http.MethodPut, path: k.path(name, c.Sub), Query: q, Body: answerdiff.Encode(Merge(o, expand(c.Put)))}
			})
		case c.Patch != nil:
			k.patchOf("case "+label, patchTarget{object: name, sub: c.Sub}, strategic, q, string(answerdiff.Encode(expand(c.Patch))))
		}
	}
}

// expand replaces the words of the corpus inside a tree.
func (k *kindCase) expand(v any) any {
	out, err := answerdiff.ParseJSON([]byte(k.corpus.replace(string(answerdiff.Encode(v)), k.namespace, first)))
	if err != nil {
		return v
	}
	return out
}
