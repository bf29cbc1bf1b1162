package resourcemetrics

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// sample is what the agent of a node has reported at one time.
type sample struct {
	asked time.Time
	node  counter
	pods  map[key]map[string]counter // by container
}

type key struct{ namespace, name string }

// counter is the CPU time that something has used so far, and its current memory.
type counter struct {
	seconds           float64
	memory            float64
	at                time.Time
	started           time.Time
	hasCPU, hasMemory bool
}

// isComplete reports whether both values are there.
func (c *counter) isComplete() bool { return c.hasCPU && c.hasMemory }

// maxLine is the length of the longest line; the longest labels are names of three kinds.
const maxLine = 64 << 10

// parse reads the metrics of a node in the text format. now is the time of metrics without a timestamp.
func parse(r io.Reader, now time.Time) (*sample, error) {
	out := &sample{pods: map[key]map[string]counter{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		m, ok := parseLine(lines.Text())
		if !ok {
			continue
		}
		if m.at.IsZero() {
			m.at = now
		}
		switch {
		case strings.HasPrefix(m.name, "node_"):
			out.node.take(strings.TrimPrefix(m.name, "node"), &m)
		case strings.HasPrefix(m.name, "container_"):
			k := key{m.labels["namespace"], m.labels["pod"]}
			if out.pods[k] == nil {
				out.pods[k] = map[string]counter{}
			}
			c := out.pods[k][m.labels["container"]]
			c.take(strings.TrimPrefix(m.name, "container"), &m)
			out.pods[k][m.labels["container"]] = c
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read what a node uses: %w", err)
	}
	return out, nil
}

func (c *counter) take(name string, m *metric) {
	switch name {
	case "_cpu_usage_seconds_total":
		c.seconds, c.at, c.hasCPU = m.value, m.at, true
	case "_memory_working_set_bytes":
		c.memory, c.hasMemory = m.value, true
	case "_start_time_seconds":
		c.started = time.Unix(0, int64(m.value*1e9))
	}
}

// metric is a line of the text format.
type metric struct {
	name   string
	labels map[string]string
	value  float64
	at     time.Time
}

// parseLine parses NAME{LABEL="VALUE",...} VALUE [MILLISECONDS]; ok is false for comments and everything else.
func parseLine(line string) (m metric, ok bool) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 || line[0] == '#' {
		return m, false
	}
	m.name = line[:end]
	rest := line[end:]
	if rest[0] == '{' {
		if m.labels, rest, ok = parseLabels(rest[1:]); !ok {
			return m, false
		}
	}
	words := strings.Fields(rest)
	if len(words) == 0 || len(words) > 2 {
		return m, false
	}
	var err error
	if m.value, err = strconv.ParseFloat(words[0], 64); err != nil || math.IsNaN(m.value) || m.value < 0 || m.value > 1e18 {
		return m, false
	}
	if len(words) == 2 {
		ms, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return m, false
		}
		m.at = time.UnixMilli(ms)
	}
	return m, true
}

// parseLabels parses the labels in braces, and returns what follows them.
func parseLabels(text string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		text = strings.TrimLeft(text, ", ")
		if strings.HasPrefix(text, "}") {
			return labels, text[1:], true
		}
		name, after, found := strings.Cut(text, `="`)
		if !found {
			return nil, "", false
		}
		value := strings.Builder{}
		i := 0
		for ; i < len(after) && after[i] != '"'; i++ {
			if after[i] == '\\' && i+1 < len(after) {
				i++
				if after[i] == 'n' {
					value.WriteByte('\n')
					continue
				}
			}
			value.WriteByte(after[i])
		}
		if i == len(after) {
			return nil, "", false
		}
		labels[name] = value.String()
		text = after[i+1:]
	}
}
