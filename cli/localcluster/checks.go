package localcluster

import (
	"bufio"
	"bytes"
	"strings"
)

// Check is one health check in the answer of /readyz.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text,omitempty"`
}

// ParseChecks parses the lines "[+]name ok" and "[-]name failed: why" of a verbose health answer.
func ParseChecks(body []byte) (out []Check) {
	lines := bufio.NewScanner(bytes.NewReader(body))
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "[+]") && !strings.HasPrefix(line, "[-]") {
			continue
		}
		name, text, _ := strings.Cut(line[3:], " ")
		out = append(out, Check{Name: name, OK: line[1] == '+', Text: text})
	}
	return out
}
