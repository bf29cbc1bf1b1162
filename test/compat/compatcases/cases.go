package compatcases

import (
	"context"
	"regexp"
	"time"

	"proa.dev/test/compat/answerdiff"
)

// Step is one request sent to both servers. Its body may depend on what the
// same server answered before (a resourceVersion, for example), so build gets
// that server's state.
type Step struct {
	Name  string
	Save  string // Name under which a good answer is kept for later steps
	Must  bool   // upstream has to accept it, or the corpus is wrong
	Build func(*State) *Call
	Until *regexp.Regexp // sent again until the answer matches
	Keep  *regexp.Regexp // what of the answer is compared, all if nil
}

// TestCase is a list of steps that share state.
type TestCase struct {
	Name    string
	Prepare func(context.Context, *Target) error
	Watch   func() *Call  // what to watch while the steps run, if anything
	List    func() *Call  // where the watch starts
	Alone   bool          // before all others: it is about everything that a server has
	Settle  time.Duration // rest after each write, for kinds the server itself writes to
	Steps   []Step
}

// State holds the answers one server gave in one case.
type State struct {
	Objects map[string]map[string]any
	Missing bool
}

// object returns a copy of a kept answer; without it the step is blocked.
func (s *State) object(name string) map[string]any {
	o, ok := s.Objects[name]
	if !ok {
		s.Missing = true
		return map[string]any{"metadata": map[string]any{}}
	}
	return answerdiff.Clone(o)
}

// version is the resourceVersion of a kept answer.
func (s *State) version(name string) string {
	meta, _ := s.object(name)["metadata"].(map[string]any)
	v, _ := meta["resourceVersion"].(string)
	return v
}
