package peerrecords

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
)

const (
	// maxWrites and maxObjects are how many writes and objects one question names, and maxQuestion how large it is.
	maxWrites, maxObjects = 2000, 4
	// maxRecent is of how many objects the last write is asked for.
	maxRecent   = 200
	maxQuestion = 512 << 10
	// maxRecords is how many records one answer has, and maxAnswer how large it is; some room is for what is around the records.
	maxRecords = 5000
	maxAnswer  = 4 << 20
	room       = 1 << 10
)

// reply is what a server knows about a question.
type reply struct {
	// Server is the name of the server that answers.
	Server  string            `json:"server"`
	Records []json.RawMessage `json:"records"`
	// More says that there are more records than one answer may have.
	More bool `json:"more,omitempty"`
	// Schedules says that the scheduler of the server runs: if it has not tried to place a Pod, no other has.
	Schedules bool         `json:"schedules,omitempty"`
	Attempts  []podAttempt `json:"attempts,omitempty"`
}

// ServeHTTP answers the question of another server, from the records of this one.
func (p *Peers) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case p == nil:
		http.NotFound(w, req)
		return
	case !p.isServer(req): // before anything else is said
		http.Error(w, "only the other servers of the cluster may ask for records", http.StatusForbidden)
		return
	case req.Method != http.MethodPost:
		http.Error(w, "a question is sent by POST", http.StatusMethodNotAllowed)
		return
	}
	var q question
	if err := decodeStrictly(http.MaxBytesReader(w, req.Body, maxQuestion), &q); err != nil {
		http.Error(w, "the question cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	if len(q.Writes) > maxWrites || len(q.Objects) > maxObjects || q.Recent < 0 || q.Recent > maxRecent || len(q.Attempts) > maxAttempts {
		http.Error(w, "the question is about too much", http.StatusBadRequest)
		return
	}
	body, err := p.answer(&q)
	if err != nil {
		http.Error(w, "the records cannot be sent", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // whoever asks notices
}

// isServer reports whether a request comes from another server. The certificate of the connection counts, and not the user of the
// request, whom a token, a header of a proxy or impersonation may name. Certificates of the group system:masters are not signed for
// anybody.
func (p *Peers) isServer(req *http.Request) bool {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return false
	}
	who, err := p.Verify(req.TLS.PeerCertificates)
	return err == nil && who.GetName() == p.User && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

// answer returns the answer to a question as JSON.
func (p *Peers) answer(q *question) ([]byte, error) {
	all := p.Records().Select(func(*hop.Record) bool { return true })
	s := related(all, q, maxRecords+1)
	out := reply{Server: p.name, Records: []json.RawMessage{}}
	size := room
	for _, i := range s.found {
		r := all[i]
		r.Wire = nil // bodies stay in the process that has kept them
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if size += len(text) + 1; len(out.Records) == maxRecords || size > maxAnswer {
			out.More = true
			break
		}
		out.Records = append(out.Records, text)
	}
	if len(q.Attempts) > 0 {
		p.addAttempts(&out, q.Attempts)
	}
	return json.Marshal(out)
}

// decodeStrictly reads one JSON value without unknown fields, and nothing after it.
func decodeStrictly(from io.Reader, into any) error {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the end")
	}
	return nil
}

const (
	// maxSkew is how far the clock of another server may be ahead, and maxTook how long work can take.
	maxSkew, maxTook = 5 * time.Minute, 365 * 24 * time.Hour
	// maxAge is how old a record can be.
	maxAge = 10 * maxTook
)

// readAnswer reads the answer of the server with a name. An answer with anything in it that cannot be is refused as a whole.
func readAnswer(body []byte, server string, now time.Time) (records []hop.Record, more bool, err error) {
	var a reply
	if err := decodeStrictly(bytes.NewReader(body), &a); err != nil {
		return nil, false, fmt.Errorf("its answer cannot be read: %w", err)
	}
	if a.Server != server {
		return nil, false, errors.New("another server has answered at its address")
	}
	if len(a.Records) > maxRecords {
		return nil, false, errors.New("its answer has too many records")
	}
	records = make([]hop.Record, len(a.Records))
	for i, text := range a.Records {
		if err := decodeStrictly(bytes.NewReader(text), &records[i]); err != nil {
			return nil, false, fmt.Errorf("its answer cannot be read: %w", err)
		}
		if err := check(&records[i], now); err != nil {
			return nil, false, fmt.Errorf("its answer has a record that cannot be: %w", err)
		}
		records[i].Bound() // no server has recorded longer texts
	}
	return records, a.More, nil
}

// check returns an error for a record that no server makes.
func check(r *hop.Record, now time.Time) error {
	switch {
	case r.Verb == "" || r.Resource == "" || r.Rev < 0 || r.CauseRev < 0:
		return errors.New("it has no verb, no resource or a negative revision")
	case r.Wire != nil:
		return errors.New("it has bodies")
	case r.Start.After(now.Add(maxSkew)) || r.Start.Before(now.Add(-maxAge)):
		return fmt.Errorf("it begins at %s", r.Start.UTC().Format(time.RFC3339))
	case r.Refused > hop.Network:
		return fmt.Errorf("it was refused at hop %d", r.Refused)
	}
	for h := range r.Took {
		if !isPossible(r.Took[h]) || !isPossible(r.Wait[h]) {
			return fmt.Errorf("it has the times %v and %v at hop %d", r.Took[h], r.Wait[h], h)
		}
	}
	for _, s := range r.Steps {
		if s.Hop > hop.Network || !isPossible(s.After) || !isPossible(s.Took) || !isPossible(s.Wait) {
			return fmt.Errorf("it has a step of %v at hop %d", s.Took, s.Hop)
		}
	}
	return nil
}

func isPossible(d time.Duration) bool { return d >= 0 && d <= maxTook }
