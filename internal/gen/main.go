// Command gen makes the data that server/openapi and server/schema embed: the OpenAPI schema of every
// served type, and the same types as structured-merge-diff sees them. It is a module of its own, so that
// the generators it needs stay out of the product.
//
// Run it with `go generate ./server/openapi`. It works in two steps because the first one writes Go code
// that the second one has to compile: this program lets openapi-gen write defs/, then runs emit.
package main

import (
	"fmt"
	"os"
	"os/exec"

	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/kube-openapi/cmd/openapi-gen/args"
	"k8s.io/kube-openapi/pkg/generators"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	a := args.New()
	a.OutputDir, a.OutputPkg, a.OutputFile = "defs", "proa.dev/internal/gen/defs", "zz_defs.go"
	a.ReportFilename = os.DevNull
	if err := os.MkdirAll(a.OutputDir, 0o755); err != nil {
		return err
	}
	targets := func(c *generator.Context) []generator.Target {
		return generators.GetOpenAPITargets(c, a, nil)
	}
	err := gengo.Execute(generators.NameSystems(), generators.DefaultNameSystem(), targets, gengo.StdBuildTag, packages())
	if err != nil {
		return fmt.Errorf("openapi-gen: %w", err)
	}
	emit := exec.Command("go", "run", "-tags", "defs", "./emit", "../../server")
	emit.Stdout, emit.Stderr = os.Stdout, os.Stderr
	return emit.Run()
}

// packages lists the Go packages whose types the server serves.
func packages() []string {
	var all []string
	for _, gv := range []string{
		"admissionregistration/v1", "apps/v1", "authentication/v1", "authorization/v1", "autoscaling/v1",
		"autoscaling/v2", "batch/v1", "certificates/v1", "coordination/v1", "core/v1", "discovery/v1", "events/v1",
		"flowcontrol/v1", "networking/v1", "node/v1", "policy/v1", "rbac/v1", "resource/v1", "scheduling/v1",
		"storage/v1", "storagemigration/v1",
	} {
		all = append(all, "k8s.io/api/"+gv)
	}
	return append(all,
		// Not served itself: batch/v1 borrows types of it.
		"k8s.io/api/scheduling/v1alpha3",
		"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
		"k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/apimachinery/pkg/apis/meta/v1",
		"k8s.io/apimachinery/pkg/runtime",
		"k8s.io/apimachinery/pkg/util/intstr",
		"k8s.io/apimachinery/pkg/version",
		"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1",
		"k8s.io/metrics/pkg/apis/metrics/v1beta1",
	)
}
