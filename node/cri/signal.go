package cri

import (
	"fmt"
	"strings"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SignalOf returns the runtime's number of a signal as the API names it, such as SIGTERM or SIGRTMIN+3.
func SignalOf(name string) (Signal, error) {
	word := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)
	n, ok := runtimev1.Signal_value["SIGNAL_"+word]
	if !ok || n == 0 {
		return 0, fmt.Errorf("the runtime has no signal %q", name)
	}
	return Signal(n), nil
}

// SignalName returns the API's name of a signal of the runtime; empty for the runtime's default.
func SignalName(s Signal) string {
	name, ok := strings.CutPrefix(s.String(), "SIGNAL_")
	if s == 0 || !ok || name == "RUNTIME_DEFAULT" {
		return ""
	}
	return strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)
}
