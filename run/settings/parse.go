package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	pattern "path"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/shutdown"
	near "proa.dev/node/topology"
	"proa.dev/run/datafolder"
	"proa.dev/server/nodeconnection"
)

// setOne makes a Set for a setting that has one value; of several values the last counts, as is usual for flags.
func setOne(set func(*Config, string) error) func(*Config, []string) error {
	return func(c *Config, vs []string) error {
		v := vs[len(vs)-1]
		if v == "" {
			return fmt.Errorf("the value is empty")
		}
		return set(c, v)
	}
}

// setFile makes a Set for a path that must be readable now, so that a typing error is reported before the server
// starts.
func setFile(field func(*Config) *string) func(*Config, []string) error {
	return setOne(func(c *Config, v string) error {
		path, err := datafolder.Absolute(v)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		*field(c) = path
		return f.Close()
	})
}

// splitLists splits values that are lists with commas.
func splitLists(vs []string) (out []string) {
	for _, v := range vs {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

func parseListen(v string) (string, error) {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return "", fmt.Errorf("%q is not ADDR:PORT, for example 127.0.0.1:6443 or 0.0.0.0:6443", v)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || (n == 0 && port != "0") {
		return "", fmt.Errorf("%q is not a port", port)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", fmt.Errorf("%q is not an IP address; names go into tls-san", host)
		}
	}
	return net.JoinHostPort(host, port), nil
}

func checkName(v string) error {
	if problems := validation.IsDNS1123Subdomain(v); len(problems) > 0 {
		return fmt.Errorf("%q: %s", v, problems[0])
	}
	return nil
}

func parseCIDRs(vs []string) ([]netip.Prefix, error) {
	if len(vs) == 0 || len(vs) > 2 {
		return nil, fmt.Errorf("give one range, or two of different families, not %d", len(vs))
	}
	var out []netip.Prefix
	for _, v := range vs {
		p, err := netip.ParsePrefix(v)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not a range such as 10.96.0.0/16", v)
		case p != p.Masked():
			return nil, fmt.Errorf("%q has bits after its length; did you mean %s", v, p.Masked())
		case p.Addr().BitLen()-p.Bits() < 3:
			return nil, fmt.Errorf("%q is too small: it needs room for eight addresses at least", v)
		case p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast():
			return nil, fmt.Errorf("%q cannot be used for services", v)
		}
		out = append(out, p)
	}
	if len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, fmt.Errorf("two ranges must be of different families, one IPv4 and one IPv6")
	}
	return out, nil
}

func parseSANs(vs []string) ([]string, error) {
	for _, v := range vs {
		if _, err := netip.ParseAddr(v); err == nil {
			continue
		}
		if len(validation.IsDNS1123Subdomain(v)) > 0 && len(validation.IsWildcardDNS1123Subdomain(v)) > 0 {
			return nil, fmt.Errorf("%q is neither a DNS name nor an IP address", v)
		}
	}
	return vs, nil
}

func parseURLs(vs []string) ([]string, error) {
	if len(vs) == 0 {
		return nil, fmt.Errorf("the value is empty")
	}
	for _, v := range vs {
		u, err := url.Parse(v)
		if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
			return nil, fmt.Errorf("%q is not a URL such as https://10.0.0.1:2379", v)
		}
	}
	return vs, nil
}

func checkIssuer(v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not an https URL without query", v)
	}
	return nil
}

// parseCount reads a number of nodes or of requests.
func parseCount(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > maxCount {
		return 0, fmt.Errorf("%q is not a number between 0 and %d", v, maxCount)
	}
	return n, nil
}

// parseNodes parses the number of nodes that run containers.
func parseNodes(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxNodes {
		return 0, fmt.Errorf("%q is not a number between 1 and %d", v, maxNodes)
	}
	return n, nil
}

// maxNodes bounds the nodes of one machine that run containers, each of which has an agent and a runtime.
const maxNodes = 50

// maxCount bounds simulated nodes and concurrent requests.
const maxCount = 20000

func oneOf(v string, known ...string) error {
	for _, k := range known {
		if v == k {
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", v, strings.Join(known, ", "))
}

func parseIPs(vs []string) (out []netip.Addr, err error) {
	for _, v := range vs {
		ip, err := netip.ParseAddr(v)
		if err != nil {
			return nil, fmt.Errorf("%q is not an IP address", v)
		}
		out = append(out, ip)
	}
	return out, nil
}

func parsePort(v string) (int, error) {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a port", v)
	}
	return int(n), nil
}

func parsePercent(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > 100 {
		return 0, fmt.Errorf("%q is not a number between 0 and 100", v)
	}
	return n, nil
}

func parsePairs(vs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, v := range vs {
		key, value, _ := strings.Cut(v, "=")
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return nil, fmt.Errorf("%q: %s", v, problems[0])
		}
		out[key] = value
	}
	return out, nil
}

func parseTaints(vs []string) (out []corev1.Taint, err error) {
	for _, v := range vs {
		at := strings.LastIndexByte(v, ':')
		if at < 0 {
			return nil, fmt.Errorf("%q is not KEY=VALUE:EFFECT", v)
		}
		key, value, _ := strings.Cut(v[:at], "=")
		effect := v[at+1:]
		if err := oneOf(effect, string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule),
			string(corev1.TaintEffectNoExecute)); err != nil {
			return nil, err
		}
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return nil, fmt.Errorf("%q: %s", v, problems[0])
		}
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return out, nil
}

func parseAmounts(vs []string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, v := range vs {
		name, amount, ok := strings.Cut(v, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not RESOURCE=AMOUNT", v)
		}
		if err := oneOf(name, "cpu", "memory", "ephemeral-storage", "pid"); err != nil {
			return nil, err
		}
		q, err := quantity.Parse(amount)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%q is not an amount such as 500m or 1Gi", amount)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

func parseThresholds(vs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, v := range vs {
		signal, amount, ok := strings.Cut(v, "<")
		if !ok {
			return nil, fmt.Errorf("%q is not SIGNAL<AMOUNT, for example memory.available<100Mi", v)
		}
		out[signal] = amount
	}
	return out, nil
}

func parseTimes(vs []string) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for _, v := range vs {
		signal, text, _ := strings.Cut(v, "=")
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return nil, fmt.Errorf("%q is not SIGNAL=DURATION, for example memory.available=1m30s", v)
		}
		out[signal] = d
	}
	return out, nil
}

func parseDuration(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as 30s or 5m", v)
	}
	return d, nil
}

func checkVersion(what, v string) error {
	if v != "v1" && v != "v1beta1" {
		return fmt.Errorf("unsupported %s webhook version %q, supported versions are %q, %q", what, v, "v1", "v1beta1")
	}
	return nil
}

// parseForeignKubelets reads NAME=sha256:FINGERPRINT and NAME=unverified. A fingerprint may have colons, as openssl prints it.
func parseForeignKubelets(vs []string) (out []nodeconnection.ForeignKubelet, err error) {
	for _, v := range vs {
		name, trust, _ := strings.Cut(v, "=")
		f := nodeconnection.ForeignKubelet{Node: name}
		if sum, given := strings.CutPrefix(trust, "sha256:"); given {
			f.Fingerprint = strings.ToLower(strings.ReplaceAll(sum, ":", ""))
		}
		sum, err := hex.DecodeString(f.Fingerprint)
		_, bad := pattern.Match(name, "")
		if name == "" || bad != nil || err != nil || trust != "unverified" && len(sum) != sha256.Size {
			return nil, fmt.Errorf("%q is not NAME=sha256:FINGERPRINT with the SHA-256 of a certificate in hexadecimal, or NAME=unverified", v)
		}
		out = append(out, f)
	}
	return out, nil
}

// parseNodeRanges reads the networks whose addresses nodes may claim.
func parseNodeRanges(vs []string) (out []netip.Prefix, err error) {
	for _, v := range vs {
		p, err := netip.ParsePrefix(v)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not a network such as 192.168.10.0/24", v)
		case p != p.Masked():
			return nil, fmt.Errorf("%q has bits after its length; did you mean %s", v, p.Masked())
		}
		out = append(out, p)
	}
	return out, nil
}

func parseRanges(vs []string) (out []netip.Prefix, err error) {
	for _, v := range vs {
		p, err := netip.ParsePrefix(v)
		if err != nil {
			if ip, bad := netip.ParseAddr(v); bad == nil {
				p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither a range such as 203.0.113.0/24 nor an address", v)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func parseStubs(vs []string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, v := range vs {
		zone, server, ok := strings.Cut(v, "=")
		_, err := netip.ParseAddrPort(server)
		if _, bare := netip.ParseAddr(strings.Trim(server, "[]")); err != nil && bare == nil {
			err = nil
		}
		if !ok || err != nil || checkName(strings.TrimSuffix(zone, ".")) != nil {
			return nil, fmt.Errorf("%q is not ZONE=IP or ZONE=IP:PORT, for example corp.example.org=10.0.0.53", v)
		}
		out[zone] = append(out[zone], server)
	}
	return out, nil
}

func parseWait(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d != 0 && d < time.Second {
		return 0, fmt.Errorf("%q is not a time of at least a second, such as 30s", v)
	}
	return d, nil
}

func parsePeriods(vs []string) (out []shutdown.Period, err error) {
	for _, v := range vs {
		priority, seconds, _ := strings.Cut(v, "=")
		p, err := strconv.ParseInt(priority, 10, 32)
		s, err2 := strconv.ParseInt(seconds, 10, 32)
		if err != nil || err2 != nil || s < 0 {
			return nil, fmt.Errorf("%q is not PRIORITY=SECONDS", v)
		}
		out = append(out, shutdown.Period{Priority: int32(p), Seconds: s})
	}
	return out, nil
}

func parseCPUOptions(vs []string) (o near.CPUOptions, err error) {
	for _, v := range vs {
		name, text, _ := strings.Cut(v, "=")
		on, err := strconv.ParseBool(text)
		if err != nil {
			return o, fmt.Errorf("%q is not NAME=true or NAME=false", v)
		}
		switch name {
		case "full-pcpus-only":
			o.WholeCores = on
		case "strict-cpu-reservation":
			o.Strict = on
		default:
			return o, fmt.Errorf("%q is none of full-pcpus-only, strict-cpu-reservation", name)
		}
	}
	return o, nil
}

// parseReserved parses memory of NUMA nodes as kubelets do: "0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=1Gi".
func parseReserved(vs []string) (map[int]map[corev1.ResourceName]int64, error) {
	out := map[int]map[corev1.ResourceName]int64{}
	for part := range strings.SplitSeq(strings.Join(vs, ";"), ";") {
		id, amounts, found := strings.Cut(part, ":")
		n, err := strconv.ParseUint(id, 10, 8)
		if err != nil || !found {
			return nil, fmt.Errorf("%q is not NODE:TYPE=AMOUNT,...", part)
		}
		if out[int(n)] != nil {
			return nil, fmt.Errorf("the NUMA node %d is named twice", n)
		}
		out[int(n)] = map[corev1.ResourceName]int64{}
		for pair := range strings.SplitSeq(amounts, ",") {
			name, text, _ := strings.Cut(pair, "=")
			q, err := quantity.Parse(text)
			if err != nil || q.Sign() <= 0 || name != string(corev1.ResourceMemory) &&
				!strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
				return nil, fmt.Errorf("%q is not memory=AMOUNT or hugepages-SIZE=AMOUNT", pair)
			}
			out[int(n)][corev1.ResourceName(name)] = q.Value()
		}
	}
	return out, nil
}
