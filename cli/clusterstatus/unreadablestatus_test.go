package clusterstatus

import (
	"bytes"
	"encoding/json"
	"testing"

	"proa.dev/cli/command"
)

// TestStatusOfAnotherUsersCluster says nothing of what it cannot know, in JSON as little as to people.
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
