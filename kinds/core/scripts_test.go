package core

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/core/podkind"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/kind/kindtest"
)

func TestPodScripts(t *testing.T) {
	kindtest.Run(t, []*kind.Def{podkind.Pods(), PodTemplates(), ReplicationControllers()}, "testdata/pods")
}

// FuzzPod checks that no pod that a client sends, as a first or a second version, makes the server panic.
func FuzzPod(f *testing.F) {
	files, err := filepath.Glob("testdata/pods/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range kindtest.Parse(string(text)) {
			is, err := yaml.YAMLToJSON([]byte(c.Object))
			if err != nil {
				f.Fatal(err)
			}
			was, err := yaml.YAMLToJSON([]byte(c.Stored))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(is, was)
		}
	}
	def := podkind.Pods()
	f.Fuzz(func(t *testing.T, is, was []byte) {
		var p, old corev1.Pod
		if json.Unmarshal(is, &p) != nil || json.Unmarshal(was, &old) != nil {
			return
		}
		def.Default(&p)
		def.Default(&old)
		created := p.DeepCopy()
		def.Prepare(created, nil)
		if len(def.Validate(created, nil)) == 0 {
			def.Warn(created, nil)
		}
		def.Row(&p)
		def.Prepare(&old, nil)
		changed := p.DeepCopy()
		def.Prepare(changed, old.DeepCopy())
		def.Validate(changed, &old)
		for _, sub := range def.Subs {
			if sub.Do == nil && sub.Connect == nil {
				changed := p.DeepCopy()
				sub.Prepare(changed, old.DeepCopy())
				sub.Validate(changed, &old)
			}
		}
	})
}

// TestBaseScripts runs the scripts of the kinds that are not pods.
func TestBaseScripts(t *testing.T) { kindtest.Run(t, All(), "testdata/base") }
