package compatcases

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"proa.dev/test/compat/answerdiff"
)

// invalidSteps try what every kind has to refuse, or to accept, alike.
func (k *kindCase) invalidSteps() {
	try := func(label string, change func(o, m map[string]any)) {
		o := k.minimal(fresh)
		change(o, o["metadata"].(map[string]any))
		k.post("create with "+label+", dry run", dry(), o)
	}
	for _, name := range []string{"", "Upper", "under_score", "a.b", "-a", "a-", "a..b", "a/b", "a%b", ".", "..", "1a", "a:b",
		strings.Repeat("n", 63), strings.Repeat("n", 64), strings.Repeat("n", 253), strings.Repeat("n", 254)} {
		try("name "+short(name), func(_, m map[string]any) { m["name"] = name })
	}
	for _, prefix := range []string{"gen-", "Gen-", "gen_", strings.Repeat("g", 250)} {
		try("generateName "+short(prefix), func(_, m map[string]any) { delete(m, "name"); m["generateName"] = prefix })
	}
	for _, pair := range [][2]string{{"good", "Good_1.x"}, {"", "x"}, {"a b", "x"}, {"a/b/c", "x"}, {"example.com/", "x"}, {"/x", "x"},
		{"UP.com/x", "x"}, {"good", "a b"}, {"good", "-a"}, {strings.Repeat("k", 64), "x"}, {"good", strings.Repeat("v", 64)}} {
		try("label "+short(pair[0])+"="+short(pair[1]), func(_, m map[string]any) { set(m, "labels", pair[0], pair[1]) })
		try("annotation "+short(pair[0])+"="+short(pair[1]), func(_, m map[string]any) { set(m, "annotations", pair[0], pair[1]) })
	}
	try("annotations of 300 KiB", func(_, m map[string]any) { set(m, "annotations", "big", strings.Repeat("x", 300<<10)) })
	try("other namespace", func(_, m map[string]any) { m["namespace"] = "elsewhere" })
	try("no namespace", func(_, m map[string]any) { delete(m, "namespace") })
	try("resourceVersion", func(_, m map[string]any) { m["resourceVersion"] = "5" })
	try("uid", func(_, m map[string]any) { m["uid"] = "11111111-1111-1111-1111-111111111111" })
	try("creationTimestamp", func(_, m map[string]any) { m["creationTimestamp"] = "2001-01-01T00:00:00Z" })
	try("deletionTimestamp", func(_, m map[string]any) { m["deletionTimestamp"] = "2001-01-01T00:00:00Z" })
	try("bad creationTimestamp", func(_, m map[string]any) { m["creationTimestamp"] = "yesterday" })
	try("generation", func(_, m map[string]any) { m["generation"] = 5 })
	try("negative generation", func(_, m map[string]any) { m["generation"] = -5 })
	try("selfLink", func(_, m map[string]any) { m["selfLink"] = "/x" })
	for _, f := range []string{"example.com/ok", "bad", "a b/c", "orphan", "foregroundDeletion", "kubernetes", ""} {
		try("finalizer "+f, func(_, m map[string]any) { m["finalizers"] = []any{f} })
	}
	try("foreground and orphan finalizers", func(_, m map[string]any) { m["finalizers"] = []any{"orphan", "foregroundDeletion"} })
	owner := func(pairs ...any) map[string]any {
		o := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-1111-1111-1111-111111111111"}
		for i := 0; i+1 < len(pairs); i += 2 {
			o[pairs[i].(string)] = pairs[i+1]
		}
		return o
	}
	for label, owners := range map[string][]any{
		"good owner": {owner()}, "owner without name": {owner("name", "")}, "owner without kind": {owner("kind", "")},
		"owner without uid":        {owner("uid", "")},
		"owner without apiVersion": {owner("apiVersion", "")}, "owner of bad apiVersion": {owner("apiVersion", "a/b/c")},
		"owner that is an event": {owner("kind", "Event")},
		"two controllers":        {owner("controller", true), owner("controller", true, "name", "y")}, "owner twice": {owner(), owner()},
		"owner that blocks": {owner("blockOwnerDeletion", true)},
	} {
		try(label, func(_, m map[string]any) { m["ownerReferences"] = owners })
	}
	try("managedFields", func(_, m map[string]any) {
		m["managedFields"] = []any{map[string]any{"manager": "x", "operation": "Update", "apiVersion": k.apiVersion(),
			"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:metadata": map[string]any{}}}}
	})
	try("other kind", func(o, _ map[string]any) { o["kind"] = "Other" })
	try("no kind", func(o, _ map[string]any) { delete(o, "kind") })
	try("other apiVersion", func(o, _ map[string]any) { o["apiVersion"] = "other/v1" })
	try("no apiVersion and kind", func(o, _ map[string]any) { delete(o, "apiVersion"); delete(o, "kind") })
	try("bad apiVersion", func(o, _ map[string]any) { o["apiVersion"] = "a/b/c" })
	try("no metadata", func(o, _ map[string]any) { delete(o, "metadata") })
	for key := range k.minimal(fresh) {
		if key == "kind" || key == "apiVersion" || key == "metadata" {
			continue
		}
		try("no "+key, func(o, _ map[string]any) { delete(o, key) })
		try("null "+key, func(o, _ map[string]any) { o[key] = nil })
		try("number as "+key, func(o, _ map[string]any) { o[key] = 5 })
		try("string as "+key, func(o, _ map[string]any) { o[key] = "x" })
		try("empty "+key, func(o, _ map[string]any) { o[key] = map[string]any{} })
		try("empty list as "+key, func(o, _ map[string]any) { o[key] = []any{} })
	}
	k.post("create, bad dryRun", query("dryRun", "Some"), k.minimal(fresh))
	k.post("create, bad fieldValidation", dry("fieldValidation", "Maybe"), k.minimal(fresh))
	k.post("create, long fieldManager", dry("fieldManager", strings.Repeat("m", 129)), k.minimal(fresh))
	k.unknownFieldSteps()
	k.bodySteps()
}

func short(s string) string {
	if len(s) > 20 {
		return s[:1] + "×" + strconv.Itoa(len(s))
	}
	return strconv.Quote(s)
}

// unknownFieldSteps send unknown and repeated fields under each validation.
func (k *kindCase) unknownFieldSteps() {
	o := k.minimal(fresh)
	plain := string(answerdiff.Encode(o))
	doubled := strings.TrimSuffix(plain, "}") + fmt.Sprintf(`,"kind":%q}`, k.kind)
	unknown := answerdiff.Clone(o)
	unknown["nonsense"] = "x"
	if meta, ok := unknown["metadata"].(map[string]any); ok {
		meta["nonsense"] = "x"
	}
	for key, v := range unknown {
		if inner, ok := v.(map[string]any); ok && key != "metadata" {
			inner["nonsense"] = "x"
		}
	}
	cased := answerdiff.Clone(o)
	cased["Metadata"] = cased["metadata"]
	delete(cased, "metadata")
	for _, validation := range []string{"Strict", "Warn", "Ignore", ""} {
		q := dry()
		if validation != "" {
			q.Set("fieldValidation", validation)
		}
		for label, body := range map[string]string{"unknown fields": string(answerdiff.Encode(unknown)), "repeated field": doubled,
			"field in other case": string(answerdiff.Encode(cased))} {
			k.add("create with "+label+", validation "+cmp.Or(validation, "unset"), "", func(*State) *Call {
				return &Call{Method: http.MethodPost, path: k.path("", ""), Query: q, Body: []byte(body)}
			})
		}
		k.add("create YAML with unknown fields, validation "+cmp.Or(validation, "unset"), "", func(*State) *Call {
			return &Call{Method: http.MethodPost, path: k.path("", ""), Query: q, Body: answerdiff.Encode(unknown),
				contentType: "application/yaml"}
		})
	}
}

// bodySteps send bodies that are no object at all.
func (k *kindCase) bodySteps() {
	for label, body := range map[string]string{"nothing": "", "half an object": `{"kind":`, "null": "null", "a list": "[]",
		"a string": `"x"`, "trailing data": string(answerdiff.Encode(k.minimal(fresh))) + "x",
		"deep nesting": strings.Repeat("[", 20000), "an empty object": "{}"} {
		k.add("create from "+label, "", func(*State) *Call {
			return &Call{Method: http.MethodPost, path: k.path("", ""), Query: dry(), Body: []byte(body), contentType: "application/json"}
		})
	}
	for _, kind := range []string{"application/x-unknown", "text/plain", "application/yaml", asProtobuf, "application/json; charset=utf-8",
		"application/cbor", "bad/"} {
		k.add("create as "+kind, "", func(*State) *Call {
			return &Call{Method: http.MethodPost, path: k.path("", ""), Query: dry(), Body: answerdiff.Encode(k.minimal(fresh)),
				contentType: kind}
		})
	}
}

// probeSteps put one field after the other of the full example into an
// otherwise minimal object, as it is and with bad values of its type, so that
// defaulting and validation of every field is compared by itself.
func (k *kindCase) probeSteps() {
	if k.full == nil {
		return
	}
	q := dry()
	if !k.can("get") {
		q = nil
	}
	for _, p := range answerdiff.Paths(k.full, 12) {
		if p[0] == "metadata" || p[0] == "kind" || p[0] == "apiVersion" || p[0] == "status" || k.deep(p) {
			continue
		}
		probe := func(label string, value any) {
			o := k.minimal(probed)
			answerdiff.Graft(o, k.full, p, value)
			k.post("field "+answerdiff.PathText(p)+label, q, o)
		}
		probe("", nil)
		switch answerdiff.At(k.full, p).(type) {
		case json.Number:
			probe(" negative", -1)
			probe(" zero", 0)
			probe(" string", "x")
		case string:
			probe(" empty", "")
			probe(" number", 5)
		case map[string]any, []any:
			probe(" number", 5)
		}
	}
}

// deep says that a path goes further into an embedded Pod than is worth
// asking again: Pod itself asks everything.
func (k *kindCase) deep(p []any) bool {
	if i := slices.Index(p, any("template")); i >= 0 && k.kind != "ResourceClaimTemplate" {
		return len(p) > i+3
	}
	for _, field := range []string{"initContainers", "ephemeralContainers"} {
		if i := slices.Index(p, any(field)); i >= 0 {
			return len(p) > i+3
		}
	}
	return false
}
