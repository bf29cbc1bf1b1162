// Package chrometrace writes a trace as events that chrome://tracing and Perfetto read.
package chrometrace

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"proa.dev/hop"
	"proa.dev/trace"
)

// event is one entry of the file. Its fields have the names of the format.
type event struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Time     float64        `json:"ts"` // in microseconds
	Took     *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	ID       string         `json:"id,omitempty"`
	Binding  string         `json:"bp,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// file is a whole file.
type file struct {
	Events []event           `json:"traceEvents"`
	Unit   string            `json:"displayTimeUnit"`
	Other  map[string]string `json:"otherData,omitempty"`
}

// JSON returns a trace as a file of events. A hop is a process of the file, and each record a thread of it; causes are arrows.
func JSON(t *trace.Trace) ([]byte, error) {
	f := file{Unit: "ms", Other: map[string]string{
		"object": t.Name, "namespace": t.Namespace, "summary": t.Summary, "state": string(t.State),
	}}
	used := map[int]bool{}
	places := map[string]event{} // by the ID of a span
	record := 0
	for i := range t.Spans {
		s := &t.Spans[i]
		e := event{
			Name: s.Name, Category: s.HopName, Phase: "X", Time: micros(s.Start.Sub(t.Start)), Took: new(float64), Process: s.Hop,
			Args: args(s),
		}
		*e.Took = micros(s.Took)
		if parent, isPart := places[s.Parent]; isPart {
			e.Process, e.Thread = parent.Process, parent.Thread
		} else {
			record++
			e.Thread = record
			f.Events = append(f.Events, name("thread_name", e, s.Name+" "+s.Object.Name))
		}
		used[e.Process] = true
		places[s.ID] = e
		f.Events = append(f.Events, e)
		for n, id := range s.Links {
			if from, known := places[id]; known {
				f.Events = append(f.Events, arrow(s.ID+"-"+strconv.Itoa(n), from, e)...)
			}
		}
	}
	for h := 0; h <= hop.Count; h++ {
		if !used[h] {
			continue
		}
		title := "requests (hops 2-7)"
		if h > 0 {
			title = fmt.Sprintf("hop %d %s", h, hop.Hop(h))
		}
		f.Events = append(f.Events, name("process_name", event{Process: h}, title),
			event{Name: "process_sort_index", Phase: "M", Process: h, Args: map[string]any{"sort_index": h}})
	}
	for _, m := range t.Milestones {
		f.Events = append(f.Events, event{Name: m.Name, Phase: "i", Time: micros(m.At), Args: map[string]any{"milestone": true}})
	}
	return json.MarshalIndent(f, "", " ")
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// name returns the event that gives the process or thread of another event a name.
func name(what string, of event, text string) event {
	return event{Name: what, Phase: "M", Process: of.Process, Thread: of.Thread, Args: map[string]any{"name": text}}
}

// arrow returns the two events that draw an arrow from the end of one event to the beginning of another.
func arrow(id string, from, to event) []event {
	begin := from.Time + *from.Took
	return []event{
		{Name: "caused", Category: "cause", Phase: "s", Time: min(begin, to.Time), Process: from.Process, Thread: from.Thread, ID: id},
		{Name: "caused", Category: "cause", Phase: "f", Time: to.Time, Process: to.Process, Thread: to.Thread, ID: id, Binding: "e"},
	}
}

// args returns what the viewer shows of a span when it is selected.
func args(s *trace.Span) map[string]any {
	out := map[string]any{}
	set := func(key, value string) {
		if value != "" {
			out[key] = value
		}
	}
	set("actor", s.Actor)
	set("resource", s.Object.Resource)
	set("group", s.Object.Group)
	set("namespace", s.Object.Namespace)
	set("name", s.Object.Name)
	set("process", s.Process)
	set("detail", s.Detail)
	set("error", s.Error)
	if s.Wait > 0 {
		out["waited_ms"] = float64(s.Wait.Microseconds()) / 1e3
	}
	if s.Critical {
		out["critical"] = true
	}
	if s.Open {
		out["open"] = true
	}
	return out
}
