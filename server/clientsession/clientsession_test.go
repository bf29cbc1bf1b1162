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
	if p := s.partOf("alice"); len(p.begins) != limit || len(p.order) != limit {
		t.Errorf("%d and %d sessions are remembered", len(p.begins), len(p.order))
	}
	later := begin.Add(time.Second)
	if at := s.Request("alice", fmt.Sprint(2*limit+7), later); !at.Equal(begin) {
		t.Error("one of the latest sessions is forgotten")
	}
	if at := s.Request("alice", fmt.Sprint(2*limit+6), later); !at.Equal(later) {
		t.Error("an old session is remembered")
	}
}

// TestManySessionsOfOneUserPushOutFewOfOthers checks that whoever names a new session in each request makes few others forgotten.
func TestManySessionsOfOneUserPushOutFewOfOthers(t *testing.T) {
	var s Sessions
	begin := time.Now()
	const users = 300
	for i := range users {
		s.Request(fmt.Sprint("user-", i), "x", begin)
	}
	for i := range 10_000 {
		s.Request("mallory", fmt.Sprint(i), begin)
	}
	forgotten := 0
	for i := range users {
		if !s.Request(fmt.Sprint("user-", i), "x", begin.Add(time.Second)).Equal(begin) {
			forgotten++
		}
	}
	if forgotten > users/8 {
		t.Errorf("%d of %d sessions are forgotten", forgotten, users)
	}
}
