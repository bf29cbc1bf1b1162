package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"proa.dev/schedule/framework"
)

// fakeExtender is an extender with configured responses. Filter has the reasons for which nodes are rejected, with a "!" in front
// if the rejection is unresolvable; a node without a reason is accepted. Preempt has the victims by node.
type fakeExtender struct {
	Filter     map[string]string   `json:"filter"`
	Prioritize map[string]int64    `json:"prioritize"`
	Preempt    map[string][]string `json:"preempt"`
	Weight     int64               `json:"weight"`
	Names      bool                `json:"names"`
	Ignorable  bool                `json:"ignorable"`
	Managed    []string            `json:"managed"`
	Fails      string              `json:"fails"`
}

func (f *fakeExtender) extender() *framework.Extender {
	verb := func(known bool, name string) string {
		if known {
			return name
		}
		return ""
	}
	return &framework.Extender{
		URL: "http://example.com/", FilterVerb: verb(f.Filter != nil, "filter"), PrioritizeVerb: verb(f.Prioritize != nil, "prioritize"),
		PreemptVerb: verb(f.Preempt != nil, "preempt"), Weight: f.Weight, NodeCacheCapable: f.Names, Ignorable: f.Ignorable,
		ManagedResources: sets.New(f.Managed...),
		Post:             f.post,
	}
}

func (f *fakeExtender) post(url string, body []byte) ([]byte, error) {
	if f.Fails != "" {
		return nil, errors.New(f.Fails)
	}
	switch strings.TrimPrefix(url, "http://example.com/") {
	case "filter":
		return f.filter(body)
	case "prioritize":
		var out extenderv1.HostPriorityList
		for node, score := range f.Prioritize {
			out = append(out, extenderv1.HostPriority{Host: node, Score: score})
		}
		return json.Marshal(out)
	case "preempt":
		out := extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{}}
		for node, pods := range f.Preempt {
			v := &extenderv1.MetaVictims{}
			for _, p := range pods {
				v.Pods = append(v.Pods, &extenderv1.MetaPod{UID: p})
			}
			out.NodeNameToMetaVictims[node] = v
		}
		return json.Marshal(out)
	}
	return nil, fmt.Errorf("no verb %s", url)
}

func (f *fakeExtender) filter(body []byte) ([]byte, error) {
	var in extenderv1.ExtenderArgs
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	var names []string
	if f.Names {
		names = *in.NodeNames
	} else {
		for _, n := range in.Nodes.Items {
			names = append(names, n.Name)
		}
	}
	out := extenderv1.ExtenderFilterResult{FailedNodes: extenderv1.FailedNodesMap{},
		FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{}}
	if f.Names {
		out.NodeNames = &[]string{}
	} else {
		out.Nodes = &corev1.NodeList{}
	}
	for _, name := range names {
		reason, known := f.Filter[name]
		switch {
		case !known || reason == "" && f.Names:
			if f.Names {
				*out.NodeNames = append(*out.NodeNames, name)
			} else {
				out.Nodes.Items = append(out.Nodes.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		case strings.HasPrefix(reason, "!"):
			out.FailedAndUnresolvableNodes[name] = reason[1:]
		case reason != "":
			out.FailedNodes[name] = reason
		}
	}
	return json.Marshal(out)
}

func TestExtenderBinds(t *testing.T) {
	var request string
	e := &framework.Extender{URL: "http://example.com", BindVerb: "bind", ManagedResources: sets.New("example.com/x"),
		Post: func(url string, body []byte) ([]byte, error) {
			request = url + " " + string(body)
			return []byte(`{"error":"no"}`), nil
		}}
	profile := &framework.Profile{Extenders: []*framework.Extender{e}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
	if profile.BinderFor(pod) != nil {
		t.Error("a Pod is bound by an extender that manages none of its resources")
	}
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/x": {}}
	if profile.BinderFor(pod) != e {
		t.Fatal("a pod is not bound by the extender that manages its resource")
	}
	if err := e.BindPod(pod, "n"); err == nil || err.Error() != "no" {
		t.Errorf("got %v, want the error of the extender", err)
	}
	if want := `http://example.com/bind {"PodName":"p","PodNamespace":"default","PodUID":"u","Node":"n"}`; request != want {
		t.Errorf("the request is %s, want %s", request, want)
	}
}

func TestExtendersNeedPost(t *testing.T) {
	if _, err := framework.NewExtenders([]configv1.Extender{{URLPrefix: "http://example.com"}}, nil); err == nil {
		t.Error("extenders are accepted without a function that sends them requests")
	}
}
