package clusterstatus

import (
	"bytes"
	"encoding/json"
	"testing"

	"proa.dev/cli/command"
)

// TestStatusOfAnotherUsersCluster checks that the JSON status of a data folder that cannot be read has only its path and the
// problem.
func TestStatusOfAnotherUsersCluster(t *testing.T) {
	var out bytes.Buffer
	s := &Status{DataDir: "/somewhere", Problems: []string{"no"}, unreadable: true}
	if err := s.print(&command.Env{Out: &out}, "json"); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["dataDir"] != "/somewhere" || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
}
