package policyadmission

import (
	"testing"

	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
)

// TestPatchesOfPoliciesAreBounded checks patches for which the library would copy a long list thousands of times.
func TestPatchesOfPoliciesAreBounded(t *testing.T) {
	for _, test := range []struct {
		ops, items int
		op         celmutation.JSONPatchVal
		want       bool
	}{
		{3000, 30_000, celmutation.JSONPatchVal{Op: "add", Path: "/l/0"}, true},
		{3000, 30_000, celmutation.JSONPatchVal{Op: "move", From: "/l/0", Path: "/l/-"}, true},
		{3000, 30_000, celmutation.JSONPatchVal{Op: "add", Path: "/labels/a"}, false},
		{3000, 30, celmutation.JSONPatchVal{Op: "remove", Path: "/l/0"}, false},
		{30, 30_000, celmutation.JSONPatchVal{Op: "remove", Path: "/l/0"}, false},
	} {
		ops := make([]ref.Val, test.ops)
		for i := range ops {
			ops[i] = &test.op
		}
		object := map[string]any{"l": make([]int, test.items)}
		if got := copiesTooMuch(celtypes.NewRefValList(celtypes.DefaultTypeAdapter, ops), object); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}
