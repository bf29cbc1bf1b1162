package clusterstatus

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// connectionMetric matches a line of the metrics of connections: their limit, or how many of a listener are open or were
// closed to make room.
var connectionMetric = regexp.MustCompile(`(?m)^(proa_connections(?:_limit|_closed_total)?)\{(?:listener="[^"]*",)?state="([^"]*)"\} (\S+)$`)

// fullConnections describes the shares of the connections of the server that are full.
func fullConnections(metrics []byte) (out []string) {
	values := map[string]map[string]float64{}
	for _, m := range connectionMetric.FindAllSubmatch(metrics, -1) {
		name, state := string(m[1]), string(m[2])
		n, err := strconv.ParseFloat(string(m[3]), 64)
		if err != nil {
			continue
		}
		if values[state] == nil {
			values[state] = map[string]float64{}
		}
		values[state][name] += n
	}
	for state, v := range values {
		if limit := v["proa_connections_limit"]; limit > 0 && v["proa_connections"] >= limit {
			out = append(out, fmt.Sprintf("all %.0f %s connections that the server may have are open; %.0f were closed to make room. "+
				"The metric proa_connections names the listeners, and docs/guide/security.md what to do", limit, state,
				v["proa_connections_closed_total"]))
		}
	}
	slices.Sort(out)
	return out
}
