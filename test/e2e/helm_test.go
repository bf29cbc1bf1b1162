package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"proa.dev/test/ports"
	"proa.dev/test/upstream"
)

// TestHelm installs a chart with many kinds of objects (test/helm/shop) with real containers, with Helm 4 and with Helm 3.
func TestHelm(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	helms, err := upstream.Build(t.Context(), "helm", "helm3")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("helm cannot be built: %v", err)
		}
		t.Skipf("helm cannot be built here (it is made from modules of the Go proxy): %v", err)
	}
	root, err := upstream.Root()
	if err != nil {
		t.Fatal(err)
	}
	port := ports.Strings(t, 1)[0]
	m := newMachine(t, bins, "--ingress-http-port", port, "--ingress-https-port", "0")
	m.up()
	m.load(archives(t, "tool", "busybox"))
	t.Run("all", func(t *testing.T) {
		for name, path := range helms {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				own := *m
				own.bins = maps.Clone(m.bins)
				own.bins["helm"] = path
				s := own.scriptIn(t, "testdata/helm/shop.txt", name,
					map[string]string{"CHART": filepath.Join(root, "test/helm/shop"), "INGRESS": port})
				s.run()
			})
		}
	})
}
