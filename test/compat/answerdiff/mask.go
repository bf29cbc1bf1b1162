package answerdiff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Masker replaces what must differ between two servers, or between two runs,
// by a word that says what stood there.
type Masker struct {
	now      time.Time
	port     string // the server's own
	patterns []pattern
	times    *regexp.Regexp
}

type pattern struct {
	expr *regexp.Regexp
	with string
}

// NewMasker returns a masker for the answers of a server that listens at a port.
func NewMasker(port string) *Masker {
	compile := func(expr, with string) pattern { return pattern{regexp.MustCompile(expr), with} }
	times := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	patterns := advertised()
	return &Masker{now: time.Now(), port: port, times: times, patterns: append(patterns, []pattern{
		compile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`, "<uid>"),
		compile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`, "<token>"),
		compile(`(ResourceVersion in (?:the )?(?:precondition|record)) \(\d+\)`, "$1 (<rv>)"),
		compile(`(ResourceVersion in (?:precondition|object meta)): \d+`, "$1: <rv>"),
		compile(`X509SHA256=[0-9a-f]{64}`, "X509SHA256=<hash>"),
		compile(`(Too large resource version): \d+, current: \d+`, "$1: <rv>, current: <rv>"),
		compile(`(too old resource version): \d+ \(\d+\)`, "$1: <rv> (<rv>)"),
		compile(`10\.96\.\d+\.\d+`, "<service-ip>"),
		// A random suffix of generateName in a message.
		compile(`((?i:gen[-_])|g{30,})[bcdfghjklmnpqrstvwxz2456789]{5}\b`, "$1<random>"),
		// Whole objects are quoted in some messages.
		compile(`(resourceVersion\\*"?:\\*")\d+`, "$1<rv>"),
		compile(`kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}\b`, "kube-api-access-<random>"),
	}...)}
}

// advertised hides the addresses of this machine, one of which proa advertises,
// and the one that upstream is told to advertise.
func advertised() []pattern {
	const word = "<advertised>"
	out := []pattern{{regexp.MustCompile(`\b192\.0\.2\.1\b`), word}}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return out
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			out = append(out, pattern{regexp.MustCompile(`\b` + regexp.QuoteMeta(ip.IP.String()) + `\b`), word})
		}
	}
	return out
}

// Value masks a whole document.
func (m *Masker) Value(v any) any { return m.walk("", v) }

func (m *Masker) walk(key string, v any) any {
	switch x := v.(type) {
	case map[string]any:
		return m.object(x)
	case []any:
		out := make([]any, len(x))
		for i, item := range x {
			out[i] = m.walk(key, item)
		}
		switch key {
		case "managedFields":
			slices.SortStableFunc(out, func(a, b any) int { return cmp.Compare(fieldKey(a), fieldKey(b)) })
		case "resourceRules", "nonResourceRules":
			// The rules of a SelfSubjectRulesReview come in no fixed order.
			slices.SortStableFunc(out, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return out
	case string:
		return m.text(key, x)
	case json.Number:
		if (key == "nodePort" || key == "healthCheckNodePort") && x != "0" {
			return "<port>"
		}
		if m.port != "" && x.String() == m.port {
			return "<server-port>"
		}
		return x
	}
	return v
}

// fieldKey orders managedFields by owner: upstream orders them by time, which
// has seconds only and so differs between runs.
func fieldKey(v any) string {
	entry, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	manager := entry["manager"]
	switch manager {
	case "kube-apiserver", "proa":
		manager = "~server" // the same place for what the servers write themselves
	}
	return fmt.Sprint(manager, "|", entry["operation"], "|", entry["subresource"], "|", entry["apiVersion"])
}

func (m *Masker) object(x map[string]any) map[string]any {
	out := make(map[string]any, len(x))
	for k, v := range x {
		out[k] = m.walk(k, v)
	}
	if prefix, ok := x["generateName"].(string); ok && prefix != "" {
		if name, ok := x["name"].(string); ok && strings.HasPrefix(name, prefix) && name != prefix {
			out["name"] = prefix + "<random>"
		}
	}
	if x["kind"] == "Table" {
		maskAges(out)
	}
	return out
}

// maskAges hides the cells of a Table that count time.
func maskAges(table map[string]any) {
	columns, _ := table["columnDefinitions"].([]any)
	var ages []int
	for i, c := range columns {
		if column, ok := c.(map[string]any); ok {
			switch column["name"] {
			case "Age", "Last Seen", "First Seen", "Duration", "Last Schedule":
				ages = append(ages, i)
			}
		}
	}
	rows, _ := table["rows"].([]any)
	duration := regexp.MustCompile(`^\d+[smhdy]`)
	for _, r := range rows {
		row, _ := r.(map[string]any)
		cells, _ := row["cells"].([]any)
		if len(columns) == 0 {
			// Only the first event of a watch names its columns.
			for i, cell := range cells {
				if s, ok := cell.(string); ok && duration.MatchString(s) {
					cells[i] = "<age>"
				}
			}
		}
		for _, i := range ages {
			if i >= len(cells) {
				continue
			}
			if s, ok := cells[i].(string); ok && s != "" && s[0] >= '0' && s[0] <= '9' {
				cells[i] = "<age>"
			}
		}
	}
}

func (m *Masker) text(key, s string) any {
	switch key {
	case "resourceVersion":
		if s != "" && s != "0" && strings.Trim(s, "0123456789") == "" {
			return "<rv>"
		}
	case "continue":
		if s != "" {
			return "<continue>"
		}
	case "ca.crt":
		return "<certificate>"
	case "serverAddress":
		return "<address>"
	case "buildDate", "goVersion", "compiler", "platform", "gitCommit":
		return "<build>"
	}
	s = m.times.ReplaceAllStringFunc(s, func(s string) string {
		if at, err := time.Parse(time.RFC3339Nano, s); err == nil && at.Sub(m.now).Abs() < 400*24*time.Hour {
			return "<time>"
		}
		return s
	})
	if m.port != "" {
		s = strings.ReplaceAll(s, ":"+m.port, ":<server-port>")
	}
	for _, p := range m.patterns {
		s = p.expr.ReplaceAllString(s, p.with)
	}
	return s
}

// Unordered is a copy of a masked Status with its causes sorted and the list
// in its message sorted too: validation of maps has no fixed order.
func Unordered(v any) any {
	status, ok := v.(map[string]any)
	if !ok || status["kind"] != "Status" {
		return v
	}
	out := make(map[string]any, len(status))
	for k, x := range status {
		out[k] = x
	}
	if message, ok := status["message"].(string); ok {
		out["message"] = sortedWords(message)
	}
	if details, ok := status["details"].(map[string]any); ok {
		copied := make(map[string]any, len(details))
		for k, x := range details {
			copied[k] = x
		}
		if causes, ok := details["causes"].([]any); ok {
			sorted := slices.Clone(causes)
			slices.SortStableFunc(sorted, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			copied["causes"] = sorted
		}
		out["details"] = copied
	}
	return out
}

func sortedWords(s string) string {
	words := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,[]", r) })
	slices.Sort(words)
	return strings.Join(words, " ")
}
