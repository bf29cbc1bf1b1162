package compatcases

import (
	"net/http"
	"net/url"
	"strings"

	"proa.dev/test/compat/answerdiff"
)

// Media types a client can ask for.
const (
	asTable       = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asPartial     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asPartialList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	asProtobuf    = "application/vnd.kubernetes.protobuf"
	asYAML        = "application/yaml"
)

// Numbers of the minimal objects by what they are used for, so that steps do
// not get into each other's way.
const (
	first = iota + 1
	second
	applied
	finalized
	graceful
	collected
	updatedInto
	fresh
	probed
)

// lifeSteps create objects in the ways a client can.
func (k *kindCase) lifeSteps() {
	create := func(name, save string, q url.Values, body map[string]any) {
		k.steps = append(k.steps, Step{Name: name, Save: save, Must: true, Build: func(*State) *Call {
			return &Call{Method: http.MethodPost, path: k.path("", ""), Query: q, Body: answerdiff.Encode(body)}
		}})
	}
	create("create, dry run", "", dry(), k.minimal(first))
	k.get("get after dry run", k.path(k.objectName(first), ""), "", nil)
	create("create", "first", nil, k.minimal(first))
	k.post("create again", nil, k.minimal(first))
	create("create second", "second", query("fieldManager", "someone"), k.minimal(second))
	if generated := k.minimal(first); k.generates() {
		meta := generated["metadata"].(map[string]any)
		delete(meta, "name")
		meta["generateName"] = "gen-"
		k.post("create with generateName", nil, generated)
	}
	if body, ok := encodeProtobuf(k.minimal(fresh)); ok {
		for label, accept := range map[string]string{"": "", ", answered in protobuf": asProtobuf} {
			k.add("create from protobuf, dry run"+label, "", func(*State) *Call {
				return &Call{Method: http.MethodPost, path: k.path("", ""), Query: dry(), Body: body, contentType: asProtobuf,
					accept: accept}
			})
		}
	}
	if k.full != nil {
		k.post("create full example as published, dry run", dry(), k.full)
		body := answerdiff.Clone(k.full)
		body["metadata"] = k.minimal(fresh)["metadata"]
		k.post("create full example with good metadata, dry run", dry(), body)
		k.post("create full example with good metadata, strict, dry run", dry("fieldValidation", "Strict"), body)
	}
}

// generates says whether objects of the kind may have any name.
func (k *kindCase) generates() bool {
	return !strings.Contains(k.corpus.minimal[k.key()], `"name":"$`) && !strings.Contains(k.corpus.minimal[k.key()], `"metadata":{"name"`)
}

// reviewSteps are for kinds that can only be created.
func (k *kindCase) reviewSteps() {
	k.steps = append(k.steps, Step{Name: "create", Must: k.kind != "Binding", Build: func(*State) *Call {
		return &Call{Method: http.MethodPost, path: k.path("", ""), Body: answerdiff.Encode(k.minimal(first))}
	}})
	k.post("create, dry run", dry(), k.minimal(first))
	if k.full != nil {
		k.post("create full example", nil, k.full)
		body := answerdiff.Clone(k.full)
		body["metadata"] = map[string]any{}
		k.post("create full example without metadata", nil, body)
	}
	for _, m := range []string{http.MethodGet, http.MethodDelete, http.MethodPut, http.MethodPatch} {
		k.add("method "+m, "", func(*State) *Call { return &Call{Method: m, path: k.path("", "")} })
	}
	k.add("create as Table", "", func(*State) *Call {
		return &Call{Method: http.MethodPost, path: k.path("", ""), accept: asTable, Body: answerdiff.Encode(k.minimal(first))}
	})
	k.unknownFieldSteps()
	k.bodySteps()
	k.handSteps()
	k.probeSteps()
}

// readSteps read single objects.
func (k *kindCase) readSteps() {
	name := k.objectName(first)
	if !k.can("create") {
		k.get("list", k.path("", ""), "", nil)
		k.get("get missing", k.path("no-such-object", ""), "", nil)
		return
	}
	item := k.path(name, "")
	for label, accept := range map[string]string{
		"get": "", "get as Table": asTable, "get as PartialObjectMetadata": asPartial, "get as protobuf": asProtobuf,
		"get as YAML": asYAML, "get as something unknown": "application/x-unknown", "get as Table or JSON": asTable + ",application/json",
		"get as anything": "*/*", "get as PartialObjectMetadataList": asPartialList,
		"get as old Table": "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
	} {
		k.get(label, item, accept, nil)
	}
	k.get("get pretty", item, "", query("pretty", "true"))
	k.get("get at resourceVersion 0", item, "", query("resourceVersion", "0"))
	k.get("get at bad resourceVersion", item, "", query("resourceVersion", "abc"))
	k.get("get with Table objects", item, asTable, query("includeObject", "Object"))
	k.get("get with no Table objects", item, asTable, query("includeObject", "None"))
	k.get("get with bad includeObject", item, asTable, query("includeObject", "Some"))
	k.get("get missing", k.path("no-such-object", ""), "", nil)
	k.get("get missing as Table", k.path("no-such-object", ""), asTable, nil)
	k.get("get missing as protobuf", k.path("no-such-object", ""), asProtobuf, nil)
	k.get("get missing subresource", k.path(name, "nonsense"), "", nil)
	k.add("post to object", "", func(*State) *Call {
		return &Call{Method: http.MethodPost, path: item, Body: answerdiff.Encode(k.minimal(first))}
	})
	for _, m := range []string{http.MethodPut, http.MethodPatch} {
		k.add(m+" to collection", "", func(*State) *Call {
			return &Call{Method: m, path: k.path("", ""), Body: answerdiff.Encode(k.minimal(first)), contentType: "application/json"}
		})
	}
	k.add("head", "", func(*State) *Call { return &Call{Method: http.MethodHead, path: item} })
	k.add("options", "", func(*State) *Call { return &Call{Method: http.MethodOptions, path: item} })
}

// watchSteps open short watches: what they begin with, and how they end.
func (k *kindCase) watchSteps() {
	watch := func(label, accept string, pairs ...string) {
		q := query(append([]string{"watch", "true", "timeoutSeconds", "1", "labelSelector", "compat=yes"}, pairs...)...)
		k.get("watch "+label, k.path("", ""), accept, q)
	}
	watch("with initial events", "", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
	if k.kind != "ConfigMap" && k.kind != "Pod" {
		return
	}
	watch("with initial events and no bookmarks", "", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan")
	watch("with no initial events", "", "sendInitialEvents", "false", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
	watch("from 0", "", "resourceVersion", "0")
	watch("from nothing", "")
	watch("from 1", "", "resourceVersion", "1")
	watch("as Table", asTable, "resourceVersion", "0")
	watch("as PartialObjectMetadata", asPartial, "resourceVersion", "0")
	watch("as YAML", asYAML, "resourceVersion", "0")
	watch("as something unknown", "application/x-unknown", "resourceVersion", "0")
	watch("of one name", "", "resourceVersion", "0", "fieldSelector", "metadata.name="+k.objectName(first))
	prefix, rest, _ := strings.Cut(k.path("", ""), "/namespaces/")
	k.get("watch by the old path", prefix+"/watch/namespaces/"+rest, "",
		query("timeoutSeconds", "1", "resourceVersion", "0", "watch", "true"))
}

// listSteps list collections with every option.
func (k *kindCase) listSteps() {
	all := k.path("", "")
	with := func(pairs ...string) url.Values {
		q := query(pairs...)
		if q.Get("labelSelector") == "" {
			q.Set("labelSelector", "compat=yes")
		}
		return q
	}
	for label, accept := range map[string]string{"list": "", "list as Table": asTable, "list as PartialObjectMetadataList": asPartialList,
		"list as protobuf": asProtobuf, "list as YAML": asYAML, "list as PartialObjectMetadata": asPartial} {
		k.get(label, all, accept, with())
	}
	for _, selector := range []string{"compat=yes", "compat!=yes,compat", "compat in (yes,no)", "compat notin (no),compat", "!compat,other",
		"nothing=here", "=", "a b", "compat=yes!", "compat in yes", "-bad-=x", "compat=" + strings.Repeat("x", 64), "a>1", "compat gt x"} {
		k.get("list with labels "+selector, all, "", query("labelSelector", selector))
	}
	for _, selector := range []string{"metadata.name=" + k.objectName(first), "metadata.name!=" + k.objectName(first),
		"metadata.namespace=" + k.namespace, "metadata.namespace=elsewhere", "spec.nonsense=a", "metadata.name", "=", "metadata.uid=1",
		"metadata.name=" + k.objectName(first) + ",metadata.name=other"} {
		k.get("list with fields "+selector, all, "", with("fieldSelector", selector))
	}
	for _, pairs := range [][]string{
		{"resourceVersion", "0"}, {"resourceVersion", "abc"}, {"resourceVersion", "-1"}, {"resourceVersionMatch", "Exact"},
		{"resourceVersionMatch", "NotOlderThan"},
		{"resourceVersion", "0", "resourceVersionMatch", "Exact"}, {"resourceVersion", "0", "resourceVersionMatch", "NotOlderThan"},
		{"resourceVersion", "1", "resourceVersionMatch", "Never"},
		{"limit", "-1"}, {"limit", "x"}, {"limit", "0"}, {"continue", "abc"},
		{"continue", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ"}, {"limit", "1", "resourceVersion", "0"},
		{"watch", "maybe", "timeoutSeconds", "1"}, {"timeoutSeconds", "x"}, {"sendInitialEvents", "true"}, {"pretty", "false"},
		{"watch", "true", "resourceVersion", "abc"},
		{"watch", "true", "sendInitialEvents", "true"}, {"watch", "true", "sendInitialEvents", "true", "resourceVersionMatch", "Exact"},
		{"watch", "true", "resourceVersionMatch", "NotOlderThan"},
		{"watch", "true", "fieldSelector", "spec.nonsense=a"}, {"watch", "true", "labelSelector", "a b"},
		{"watch", "true", "resourceVersion", "9223372036854775807", "timeoutSeconds", "1"},
	} {
		k.get("list with "+strings.Join(pairs, " "), all, "", with(pairs...))
	}
	page := func(name, save, from string) {
		k.add(name, save, func(s *State) *Call {
			q := with("limit", "1")
			if from != "" {
				q.Set("continue", answerdiff.Text(s.object(from)["metadata"], "continue"))
			}
			return &Call{Method: http.MethodGet, path: all, Query: q}
		})
	}
	page("list page 1", "page1", "")
	page("list page 2", "page2", "page1")
	k.get("list page as Table", all, asTable, with("limit", "1"))
	k.add("list exact revision", "", func(s *State) *Call {
		return &Call{Method: http.MethodGet, path: all,
			Query: with("resourceVersionMatch", "Exact", "resourceVersion", s.version("second"))}
	})
	if k.namespaced {
		across := *k
		across.namespace = ""
		k.get("list across namespaces", across.path("", ""), "", with("fieldSelector", "metadata.namespace="+k.namespace))
		k.get("list across namespaces as Table", across.path("", ""), asTable, with("fieldSelector", "metadata.namespace="+k.namespace))
		k.add("create without namespace in path", "", func(*State) *Call {
			return &Call{Method: http.MethodPost, path: across.path("", ""), Body: answerdiff.Encode(k.minimal(fresh)), Query: dry()}
		})
	}
}
