package codec_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
)

// denseBody is a request body that makes the decoder allocate as much memory as possible for its size.
type denseBody struct {
	name  string
	media codec.Media
	gvk   schema.GroupVersionKind
	into  kind.Object
	body  string
}

// denseBodies returns bodies of about size bytes.
func denseBodies(size int) []denseBody {
	maps, pods := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Pod")
	crds := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	many := func(s string) string { return strings.Repeat(s, size/len(s)) }
	text := "apiVersion: v1\nkind: ConfigMap\nx:"
	flow := func(s string) string { return text + " [" + many(s) + "]" }
	message := func(field byte, body string) string {
		return string(binary.AppendUvarint([]byte{field<<3 | 2}, uint64(len(body)))) + body
	}
	envelope := func(name, raw string) string {
		return "k8s\x00" + message(1, message(1, "v1")+message(2, name)) + message(2, raw)
	}
	var keys strings.Builder
	for i := 0; keys.Len() < size; i++ {
		fmt.Fprintf(&keys, `"%x":"",`, i)
	}
	object := func(name string) string { return `{"apiVersion":"v1","kind":"` + name + `",` }
	return []denseBody{
		{"yaml lists of maps", codec.YAML, maps, &corev1.ConfigMap{}, text + "\n" + many("- a:\n")},
		{"yaml lists", codec.YAML, maps, &corev1.ConfigMap{}, text + "\n" + many("-\n")},
		{"yaml lists with line breaks of Unicode", codec.YAML, maps, &corev1.ConfigMap{}, text + "\n" + many("-\u0085")},
		{"yaml flow scalars", codec.YAML, maps, &corev1.ConfigMap{}, flow("a,")},
		{"yaml flow maps", codec.YAML, maps, &corev1.ConfigMap{}, flow("{},")},
		{"yaml flow maps with a key", codec.YAML, maps, &corev1.ConfigMap{}, flow("{a},")},
		{"yaml flow lists", codec.YAML, maps, &corev1.ConfigMap{}, flow("[],")},
		{"yaml flow keys", codec.YAML, maps, &corev1.ConfigMap{}, text + " {" + many("a,") + "}"},
		{"yaml containers", codec.YAML, pods, &corev1.Pod{}, "apiVersion: v1\nkind: Pod\nspec: {containers: [" + many("{},") + "]}"},
		{"yaml block containers", codec.YAML, pods, &corev1.Pod{}, "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n" + many("  - a:\n")},
		{"yaml aliases", codec.YAML, maps, &corev1.ConfigMap{},
			text + "\n - &a [" + strings.Repeat("{a},", 600) + "]\n - [" + strings.Repeat("*a,", 600) + "]"},
		{"json in yaml", codec.YAML, pods, &corev1.Pod{}, object("Pod") + `"spec":{"containers":[` + many("{},") + "{}]}}"},
		{"json containers", codec.JSON, pods, &corev1.Pod{}, object("Pod") + `"spec":{"containers":[` + many("{},") + "{}]}}"},
		{"json strings", codec.JSON, pods, &corev1.Pod{}, object("Pod") + `"spec":{"containers":[{"args":[` + many(`"",`) + `""]}]}}`},
		{"json schemas", codec.JSON, crds, &apiextensionsv1.CustomResourceDefinition{}, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","spec":{"versions":[{"schema":{"openAPIV3Schema":{"allOf":[` + many("{},") + "{}]}}}]}}"},
		{"json keys", codec.JSON, maps, &corev1.ConfigMap{}, object("ConfigMap") + `"data":{` + keys.String() + `"z":""}}`},
		{"json untyped maps", codec.JSON, maps, &unstructured.Unstructured{}, object("ConfigMap") + `"x":[` + many("{},") + "{}]}"},
		{"json untyped lists", codec.JSON, maps, &unstructured.Unstructured{}, object("ConfigMap") + `"x":[` + many("[],") + "[]]}"},
		{"json untyped numbers", codec.JSON, maps, &unstructured.Unstructured{}, object("ConfigMap") + `"x":[` + many("1,") + "1]}"},
		{"protobuf containers", codec.Proto, pods, &corev1.Pod{}, envelope("Pod", message(2, many("\x12\x00")))},
		{"protobuf containers and then none", codec.Proto, pods, &corev1.Pod{}, envelope("Pod", message(2, many("\x12\x00")+"\x07"))},
		{"protobuf strings", codec.Proto, pods, &corev1.Pod{}, envelope("Pod", message(2, message(2, many("\x22\x00"))))},
	}
}

// TestCostBoundsMemory decodes dense bodies, and checks that the peak memory is not more than Cost returns. Frequent garbage
// collections keep the heap close to what is in use.
func TestCostBoundsMemory(t *testing.T) {
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := codec.New(scheme)
	for _, d := range denseBodies(64 << 10) {
		cost := codec.Cost(d.media, []byte(d.body))
		used := peakOf(func() { _, _, _ = c.Decode([]byte(d.body), d.media, d.gvk, d.into, true) })
		t.Logf("%-40s %7d bytes, cost %5.1f MB, used %5.1f MB", d.name, len(d.body), float64(cost)/1e6, float64(used)/1e6)
		if used > cost+cost/2+4<<20 { // a part of it is garbage that has not been collected yet
			t.Errorf("%s: decoding took %d bytes, more than the %d foreseen", d.name, used, cost)
		}
	}
}

// peakOf returns about how many bytes of memory f has in use at its peak. It reads the heap's size from
// runtime/metrics, which does not stop the world: runtime.ReadMemStats in a loop would take more time than what it
// measures.
func peakOf(f func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	runtime.GC()
	runtime.GC() // the second one empties sync.Pools
	before := heapInUse()
	var stop atomic.Bool
	peaks := make(chan int64)
	go func() {
		peak := before
		for !stop.Load() {
			peak = max(peak, heapInUse())
			time.Sleep(20 * time.Microsecond) // gives the CPU to f and the garbage collector
		}
		peaks <- peak
	}()
	f()
	last := heapInUse() // f may have returned before the goroutine's first measurement
	stop.Store(true)
	return max(<-peaks, last) - before
}

// heapInUse returns the bytes of objects on the heap that are in use or not collected yet.
func heapInUse() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// TestCostOfOrdinaryObjects checks that ordinary objects have a low cost, also when they are large.
func TestCostOfOrdinaryObjects(t *testing.T) {
	var text, crd strings.Builder
	text.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a: |\n")
	for text.Len() < 3<<20-100 {
		text.WriteString("    # a line of a config file, as people write them: {\"with\": \"some\", 'signs': [1, 2]}\n")
	}
	crd.WriteString("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\nspec:\n  versions:\n  - name: v1\n    schema:\n      openAPIV3Schema:\n")
	for i := 0; i < 40000; i += 4 {
		fmt.Fprintf(&crd, "          field%d:\n            description: it is what it is, for example http://example.com\n            type: string\n            nullable: true\n", i)
	}
	dashboard := "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"" + strings.Repeat(`{\"a\":1,\"b\":[]},`, 3<<20/18) + "\"}}"
	for _, v := range []struct {
		name  string
		media codec.Media
		body  string
		most  int64
	}{
		{"a ConfigMap of 3 MB", codec.YAML, text.String(), 240 << 20},
		{"a CRD of 40000 lines", codec.YAML, crd.String(), 60 << 20},
		{"JSON in a string of JSON as YAML", codec.YAML, dashboard, 30 << 20},
		{"JSON in a string of JSON", codec.JSON, dashboard, 30 << 20},
	} {
		cost := codec.Cost(v.media, []byte(v.body))
		t.Logf("%s: %d bytes, %d MB", v.name, len(v.body), cost>>20)
		if cost > v.most {
			t.Errorf("%s: %d bytes cost %d, more than %d", v.name, len(v.body), cost, v.most)
		}
	}
}

// FuzzCost checks that Cost accepts every body and is never less than its size.
func FuzzCost(f *testing.F) {
	for _, d := range denseBodies(64) {
		f.Add(uint8(d.media), []byte(d.body))
	}
	f.Fuzz(func(t *testing.T, media uint8, body []byte) {
		if cost := codec.Cost(codec.Media(media%3+1), body); cost < int64(len(body)) {
			t.Errorf("%q costs %d", body, cost)
		}
	})
}
