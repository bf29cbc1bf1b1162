package clientsession

import (
	"fmt"
	"testing"
	"time"
)

func TestSessionBeginsWithItsFirstRequest(t *testing.T) {
	var s Sessions
	begin := time.Now()
	if at := s.Request("alice", "x", begin); !at.Equal(begin) {
		t.Error(at)
	}
	if at := s.Request("alice", "x", begin.Add(time.Second)); !at.Equal(begin) {
		t.Errorf("the second request begins the session again, at %v", at)
	}
	if later := begin.Add(2 * time.Second); !s.Request("bob", "x", later).Equal(later) || !s.Request("alic", "ex", later).Equal(later) {
		t.Error("users share sessions")
	}
}

func TestOldSessionsMakeRoom(t *testing.T) {
	var s Sessions
	begin := time.Now()
	for i := range 3*limit + 7 {
		s.Request("alice", fmt.Sprint(i), begin)
	}
	if len(s.begins) != limit || len(s.order) != limit {
		t.Errorf("%d and %d sessions are remembered", len(s.begins), len(s.order))
	}
	later := begin.Add(time.Second)
	if at := s.Request("alice", fmt.Sprint(2*limit+7), later); !at.Equal(begin) {
		t.Error("one of the latest sessions is forgotten")
	}
	if at := s.Request("alice", fmt.Sprint(2*limit+6), later); !at.Equal(later) {
		t.Error("an old session is remembered")
	}
}
