package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// random is the alphabet of generated names and of hashes in names.
const random = "[bcdfghjklmnpqrstvwxz2456789]"

var (
	timeLike   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	ipLike     = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`)
	suffixLike = regexp.MustCompile(`-` + random + `{5}\b`)
	uidLike    = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	// cronLike is the number of minutes that ends the name of a CronJob's Job.
	cronLike = regexp.MustCompile(`-2\d{7}\b`)
)

// names maps names that the two systems have generated to names that are the same on both.
type names struct {
	hashes map[string]string // of pod templates and revisions, by their order
	uids   map[string]string
}

// collect finds the generated names of a set of objects.
func collect(objects []object) *names {
	n := &names{map[string]string{}, map[string]string{}}
	slices.SortStableFunc(objects, func(a, b object) int { return cmp.Compare(order(a), order(b)) })
	count := map[string]int{}
	for _, o := range objects {
		for _, label := range []string{"pod-template-hash", "controller.kubernetes.io/hash", "controller-revision-hash"} {
			hash := text(o, "metadata", "labels", label)
			if kind := text(o, "kind"); hash == "" || kind != "ReplicaSet" && kind != "ControllerRevision" || n.hashes[hash] != "" {
				continue
			}
			owner := label
			for _, ref := range items(o, "metadata", "ownerReferences") {
				owner = text(ref, "uid")
			}
			count[owner]++
			n.hashes[hash] = "HASH" + strconv.Itoa(count[owner])
		}
	}
	for _, o := range objects {
		n.uids[text(o, "metadata", "uid")] = "uid of " + text(o, "kind") + " " + n.mask(text(o, "metadata", "name"))
	}
	return n
}

// order puts older revisions first.
func order(o object) int64 {
	if r, ok := at(o, "revision").(float64); ok {
		return int64(r)
	}
	r, _ := strconv.ParseInt(text(o, "metadata", "annotations", "deployment.kubernetes.io/revision"), 10, 64)
	return r
}

func (n *names) mask(s string) string {
	for hash, word := range n.hashes {
		// A StatefulSet's label has the name of the revision, a DaemonSet's only its hash.
		s = strings.ReplaceAll(s, hash, word)
	}
	s = timeLike.ReplaceAllString(s, "TIME")
	s = ipLike.ReplaceAllString(s, "IP")
	s = uidLike.ReplaceAllStringFunc(s, func(uid string) string { return cmp.Or(n.uids[uid], "UID") })
	s = cronLike.ReplaceAllString(s, "-MINUTE")
	return suffixLike.ReplaceAllString(s, "-*")
}

// value masks everything below a value.
func (n *names) value(v any) any {
	switch v := v.(type) {
	case string:
		return n.mask(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = n.value(e)
		}
		return out
	case object:
		out := object{}
		for k, e := range v {
			out[n.mask(k)] = n.value(e)
		}
		return out
	}
	return v
}

// canonical returns a snapshot of objects and Events in which everything generated is replaced, so that two systems can be compared.
func canonical(name string, objects []object, sc *scenario) snap {
	n := collect(objects)
	out := snap{Name: name, Objects: map[string][]object{}}
	events := map[string]bool{}
	for _, o := range objects {
		kind := text(o, "kind")
		switch {
		case kind == "Event":
			events[n.event(o)] = true
			continue
		case kind == "Node" && !sc.alone, kind == "ServiceAccount", text(o, "metadata", "name") == "kube-root-ca.crt":
			continue
		}
		c := n.value(o).(object)
		meta := c["metadata"].(object)
		for _, k := range []string{"managedFields", "resourceVersion", "uid", "selfLink"} {
			delete(meta, k)
		}
		removeRandomness(kind, c)
		key := kind + " " + text(c, "metadata", "name")
		if space := text(c, "metadata", "namespace"); space != "" && space != sc.space() {
			key += " in " + space
		}
		out.Objects[key] = append(out.Objects[key], c)
	}
	for _, list := range out.Objects {
		slices.SortFunc(list, func(a, b object) int { return cmp.Compare(flat(a), flat(b)) })
	}
	for e := range events {
		out.Events = append(out.Events, e)
	}
	slices.Sort(out.Events)
	return out
}

// removeRandomness removes what is random: the node of a Pod if several have the same score, and the order of unordered lists.
func removeRandomness(kind string, c object) {
	switch kind {
	case "Pod":
		if spec, ok := c["spec"].(object); ok && spec["nodeName"] != nil && at(c, "spec", "affinity") == nil &&
			at(c, "spec", "nodeSelector") == nil {
			spec["nodeName"] = "NODE"
		}
		sortBy(c, "type", "status", "conditions")
	case "EndpointSlice":
		for _, e := range items(c, "endpoints") {
			if e["nodeName"] != nil {
				e["nodeName"] = "NODE"
			}
		}
		sortAll(c, "endpoints")
		sortBy(c, "name", "ports")
	case "Endpoints":
		for _, s := range items(c, "subsets") {
			for _, k := range []string{"addresses", "notReadyAddresses"} {
				for _, a := range items(s, k) {
					if a["nodeName"] != nil {
						a["nodeName"] = "NODE"
					}
				}
				sortAll(s, k)
			}
		}
		sortAll(c, "subsets")
	case "PersistentVolume":
		if ref, ok := at(c, "spec", "claimRef").(object); ok {
			delete(ref, "resourceVersion")
		}
		sortBy(c, "type", "status", "conditions")
	case "Secret":
		if data, ok := c["data"].(object); ok {
			for k := range data {
				data[k] = "DATA"
			}
		}
	case "Node":
		// The ranges of Pod addresses depend on the configuration of the cluster.
		if spec, ok := c["spec"].(object); ok {
			delete(spec, "podCIDR")
			delete(spec, "podCIDRs")
		}
		sortBy(c, "key", "spec", "taints")
		sortBy(c, "type", "status", "conditions")
	default:
		sortBy(c, "type", "status", "conditions")
	}
}

func sortBy(o object, key string, keys ...string) {
	list, _ := at(o, keys...).([]any)
	slices.SortStableFunc(list, func(a, b any) int { return cmp.Compare(text(a, key), text(b, key)) })
}

func sortAll(o object, keys ...string) {
	list, _ := at(o, keys...).([]any)
	slices.SortStableFunc(list, func(a, b any) int { return cmp.Compare(flat(a), flat(b)) })
}

func flat(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// event formats an Event without times and counts.
func (n *names) event(o object) string {
	who := cmp.Or(text(o, "reportingComponent"), "-")
	if source := text(o, "source", "component"); source != who {
		who += " (source " + cmp.Or(source, "-") + ")"
	}
	s := fmt.Sprintf("%s %s on %s %s by %s: %s", text(o, "type"), text(o, "reason"), text(o, "involvedObject", "kind"),
		text(o, "involvedObject", "name"), who, text(o, "message"))
	if a := text(o, "action"); a != "" {
		s += " [action " + a + "]"
	}
	if r := text(o, "related", "name"); r != "" {
		s += " [related " + text(o, "related", "kind") + " " + r + "]"
	}
	if f := text(o, "involvedObject", "fieldPath"); f != "" {
		s += " [field " + f + "]"
	}
	s = nodeLike.ReplaceAllString(n.mask(s), " to NODE")
	return s
}

// nodeLike is a node in the text of a placement, when it may be any of two.
var nodeLike = regexp.MustCompile(` to n[12]\b`)
