package servicekind

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/kind/kindtest"
)

// cluster is a store whose Services are written through the kind.
type cluster struct{ *kindtest.Cluster }

func newCluster(serviceCIDRs ...string) cluster { return cluster{kindtest.NewCluster(serviceCIDRs...)} }

// write writes a service through the kind as the pipeline does, and commits the transaction.
func (c cluster) write(s, old *corev1.Service) error {
	d := Services()
	c.Begin()
	var was kind.Object
	if old != nil {
		was = old.DeepCopy()
		was.SetResourceVersion("1")
	}
	if s != nil {
		if old != nil {
			s.ResourceVersion = "1"
		}
		s.Namespace = "default"
		d.Default(s)
		d.Prepare(s, was)
		if errs := d.Validate(s, was); len(errs) > 0 {
			return errs.ToAggregate()
		}
		if err := d.Begin(context.Background(), c, s, was); err != nil {
			return err
		}
	} else if err := d.Begin(context.Background(), c, nil, was); err != nil {
		return err
	}
	if c.Dry {
		return nil
	}
	maps.Copy(c.Objects, c.Created)
	for key, owner := range c.Claimed {
		if other, taken := c.Claims[key]; taken {
			return errors.New(key + " is claimed by " + other)
		}
		c.Claims[key] = owner
	}
	for _, key := range c.Released {
		delete(c.Claims, key)
	}
	for _, key := range c.Deleted {
		delete(c.Objects, key)
	}
	if s == nil {
		delete(c.Objects, "services/default/"+old.Name)
	} else {
		c.Objects["services/default/"+s.Name] = s.DeepCopy()
	}
	return nil
}

func service(t *testing.T, text string) *corev1.Service {
	t.Helper()
	s := &corev1.Service{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	if s.Name == "" {
		s.Name = "a"
	}
	return s
}

// taken lists the addresses and node ports that are taken.
func (c cluster) taken() (list []string) {
	for key := range c.Objects {
		if ip, ok := strings.CutPrefix(key, "ipaddresses//"); ok {
			list = append(list, ip)
		}
	}
	for key := range c.Claims {
		list = append(list, strings.TrimPrefix(key, "/registry/proa/nodeports/"))
	}
	slices.Sort(list)
	return list
}

func TestServiceAddressLife(t *testing.T) {
	c := newCluster("10.96.0.0/16", "fd00::/112")
	s := service(t, `spec: {ports: [{port: 80}], ipFamilyPolicy: PreferDualStack}`)
	if err := c.write(s, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.Spec.ClusterIPs) != 2 || s.Spec.ClusterIP != s.Spec.ClusterIPs[0] ||
		!slices.Equal(s.Spec.IPFamilies, []corev1.IPFamily{"IPv4", "IPv6"}) {
		t.Fatalf("got %+v", s.Spec)
	}
	if got := c.taken(); !slices.Equal(got, s.Spec.ClusterIPs) {
		t.Fatalf("taken %v, want %v", got, s.Spec.ClusterIPs)
	}
	o := c.Objects["ipaddresses//"+s.Spec.ClusterIPs[1]].(*networkingv1.IPAddress)
	if want := (&networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "a"}); !reflect.DeepEqual(o.Spec.ParentRef,
		want) ||
		o.Labels["ipaddress.kubernetes.io/ip-family"] != "IPv6" || o.Labels["ipaddress.kubernetes.io/managed-by"] != "ipallocator.k8s.io" {
		t.Errorf("got %+v", o)
	}
	// The same manifest again changes nothing.
	same := service(t, `spec: {ports: [{port: 80}], ipFamilyPolicy: PreferDualStack}`)
	if err := c.write(same, s); err != nil || !slices.Equal(same.Spec.ClusterIPs, s.Spec.ClusterIPs) || len(c.Created)+len(c.Deleted) > 0 {
		t.Fatalf("%v: %v, creates %v, deletes %v", err, same.Spec.ClusterIPs, c.Created, c.Deleted)
	}
	// One family gives the second address back, and nothing but a type without addresses the first.
	single := service(t, `spec: {ports: [{port: 80}], ipFamilyPolicy: SingleStack}`)
	if err := c.write(single, same); err != nil || len(single.Spec.ClusterIPs) != 1 || !slices.Equal(c.taken(), s.Spec.ClusterIPs[:1]) {
		t.Fatalf("%v: %v, taken %v", err, single.Spec, c.taken())
	}
	named := service(t, `spec: {type: ExternalName, externalName: x.y}`)
	if err := c.write(named, single); err != nil || len(named.Spec.ClusterIPs) > 0 || named.Spec.InternalTrafficPolicy != nil ||
		len(c.taken()) > 0 {
		t.Fatalf("%v: %+v, taken %v", err, named.Spec, c.taken())
	}
	back := service(t, `spec: {ports: [{port: 80}]}`)
	if err := c.write(back, named); err != nil || len(c.taken()) != 1 {
		t.Fatalf("%v: %+v, taken %v", err, back.Spec, c.taken())
	}
	if err := c.write(nil, back); err != nil || len(c.taken()) != 0 {
		t.Fatalf("%v: taken %v", err, c.taken())
	}
}

func TestServicePortLife(t *testing.T) {
	c := newCluster("10.96.0.0/16")
	s := service(t, `spec: {type: LoadBalancer, externalTrafficPolicy: Local, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}, {name: c, port: 80, nodePort: 30080}]}`)
	if err := c.write(s, nil); err != nil {
		t.Fatal(err)
	}
	p := s.Spec.Ports
	if p[0].NodePort == 0 || p[0].NodePort != p[1].NodePort || p[2].NodePort != 30080 || s.Spec.HealthCheckNodePort == 0 ||
		len(c.Claims) != 3 {
		t.Fatalf("got %+v, claims %v", s.Spec, c.Claims)
	}
	node := service(t, `spec: {type: NodePort, ports: [{name: a, port: 53}, {name: c, port: 81}]}`)
	if err := c.write(node, s); err != nil {
		t.Fatal(err)
	}
	if node.Spec.Ports[0].NodePort != p[0].NodePort || node.Spec.Ports[1].NodePort != 30080 || len(c.Claims) != 2 ||
		node.Spec.HealthCheckNodePort != 0 {
		t.Fatalf("got %+v, claims %v", node.Spec, c.Claims)
	}
	plain := node.DeepCopy()
	plain.Spec.Type = corev1.ServiceTypeClusterIP
	if err := c.write(plain, node); err != nil || len(c.Claims) != 0 || plain.Spec.Ports[0].NodePort != 0 ||
		plain.Spec.ExternalTrafficPolicy != "" {
		t.Fatalf("%v: %+v, claims %v", err, plain.Spec, c.Claims)
	}
}

func TestServiceRefusals(t *testing.T) {
	for _, test := range []struct{ name, spec, want string }{
		{"address outside", `{ports: [{port: 80}], clusterIP: 10.1.0.1}`, `Service "a" is invalid: spec.clusterIPs: Invalid value: ["10.1.0.1"]: failed to allocate IP 10.1.0.1: the provided network does not match the current range`},
		{"address taken", `{ports: [{port: 80}], clusterIP: 10.96.0.10}`, `Service "a" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated`},
		{"network address", `{ports: [{port: 80}], clusterIP: 10.96.0.0}`, `Service "a" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.0"]: failed to allocate IP 10.96.0.0: the provided network does not match the current range`},
		{"port taken", `{type: NodePort, ports: [{port: 80, nodePort: 30080}]}`, `Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated`},
		{"port outside", `{type: NodePort, ports: [{port: 80, nodePort: 80}]}`, `Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767`},
		{"health port taken", `{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30080, ports: [{port: 80}]}`, `Internal error occurred: failed to allocate requested HealthCheck NodePort 30080: provided port is already allocated`},
		{"two families", `{ports: [{port: 80}], ipFamilyPolicy: RequireDualStack}`, `Service "a" is invalid: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`},
		{"other family", `{ports: [{port: 80}], ipFamilies: [IPv6]}`, `Service "a" is invalid: spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`},
		{"address of other family", `{ports: [{port: 80}], clusterIP: "fd00::1"}`, `Service "a" is invalid: spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster`},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster("10.96.0.0/16")
			other := service(t, `{metadata: {name: other}, spec: {type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]}}`)
			if err := c.write(other, nil); err != nil {
				t.Fatal(err)
			}
			if err := c.write(service(t, "spec: "+test.spec), nil); err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestServiceFamilies(t *testing.T) {
	for _, test := range []struct {
		name, spec string
		cidrs      []string
		policy     corev1.IPFamilyPolicy
		families   []corev1.IPFamily
		addresses  int
	}{
		{"plain", `{ports: [{port: 80}]}`, []string{"10.0.0.0/24"}, "SingleStack", []corev1.IPFamily{"IPv4"}, 1},
		{"the cluster's default", `{ports: [{port: 80}]}`, []string{"fd00::/112", "10.0.0.0/24"}, "SingleStack", []corev1.IPFamily{"IPv6"},
			1},
		{"preference without a choice", `{ports: [{port: 80}], ipFamilyPolicy: PreferDualStack}`, []string{"10.0.0.0/24"},
			"PreferDualStack", []corev1.IPFamily{"IPv4"}, 1},
		{"two", `{ports: [{port: 80}], ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6]}`, []string{"10.0.0.0/24", "fd00::/112"}, "RequireDualStack", []corev1.IPFamily{"IPv6", "IPv4"}, 2},
		{"headless", `{clusterIP: None, selector: {a: b}}`, []string{"10.0.0.0/24", "fd00::/112"}, "SingleStack", []corev1.IPFamily{"IPv4"},
			0},
		{"headless without a selector", `{clusterIP: None}`, []string{"10.0.0.0/24"}, "RequireDualStack", []corev1.IPFamily{"IPv4", "IPv6"},
			0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(test.cidrs...)
			s := service(t, "spec: "+test.spec)
			if err := c.write(s, nil); err != nil {
				t.Fatal(err)
			}
			if ptr.Deref(s.Spec.IPFamilyPolicy, "") != test.policy || !slices.Equal(s.Spec.IPFamilies, test.families) ||
				len(c.taken()) != test.addresses {
				t.Errorf("got %v %v, taken %v", ptr.Deref(s.Spec.IPFamilyPolicy, ""), s.Spec.IPFamilies, c.taken())
			}
		})
	}
}

func TestServiceDryRun(t *testing.T) {
	c := newCluster("10.96.0.0/16")
	c.Dry = true
	s := service(t, `spec: {type: NodePort, ports: [{name: a, port: 80}, {name: b, port: 81}]}`)
	if err := c.write(s, nil); err != nil {
		t.Fatal(err)
	}
	if s.Spec.ClusterIP != "10.96.0.0" || s.Spec.Ports[0].NodePort != 32769 || s.Spec.Ports[1].NodePort != 32770 ||
		len(c.Created)+len(c.Claimed) > 0 {
		t.Errorf("got %+v, creates %v, claims %v", s.Spec, c.Created, c.Claimed)
	}
}

func TestPickAddress(t *testing.T) {
	for _, test := range []struct {
		cidr        string
		first, last string // the band that is used first
		all         int    // how many there are; 0 for too many to count
	}{
		{"10.0.0.0/24", "10.0.0.17", "10.0.0.254", 254},
		{"10.0.0.0/28", "10.0.0.1", "10.0.0.14", 14},
		{"10.0.0.0/27", "10.0.0.17", "10.0.0.30", 30},
		{"10.0.0.0/16", "10.0.1.1", "10.0.255.254", 0},
		{"fd00::/120", "fd00::11", "fd00::ff", 255},
		{"fd00::/64", "fd00::101", "fd00::ffff:ffff:ffff:ffff", 0},
		{"10.0.0.0/31", "", "", 0},
	} {
		t.Run(test.cidr, func(t *testing.T) {
			r := netip.MustParsePrefix(test.cidr)
			if test.first == "" {
				if ip, ok := pickAddress(r, func(netip.Addr) bool { return false }, rand.Uint64N); ok {
					t.Errorf("got %v", ip)
				}
				return
			}
			free := func(netip.Addr) bool { return false }
			low, _ := pickAddress(r, free, func(uint64) uint64 { return 0 })
			high, _ := pickAddress(r, free, func(n uint64) uint64 { return n - 1 })
			if low.String() != test.first || high.String() != test.last {
				t.Errorf("got %v to %v, want %v to %v", low, high, test.first, test.last)
			}
			if test.all == 0 {
				return
			}
			used := map[netip.Addr]bool{}
			for range test.all {
				ip, ok := pickAddress(r, func(ip netip.Addr) bool { return used[ip] }, rand.Uint64N)
				if !ok || used[ip] || !isAssignable(r, ip) {
					t.Fatalf("after %d: %v %v", len(used), ip, ok)
				}
				used[ip] = true
			}
			if ip, ok := pickAddress(r, func(ip netip.Addr) bool { return used[ip] }, rand.Uint64N); ok {
				t.Errorf("one too many: %v", ip)
			}
		})
	}
}

func TestPickPort(t *testing.T) {
	used := map[int]bool{}
	for i := range lastNodePort - firstNodePort + 1 {
		port, ok := pickPort(func(p int) bool { return used[p] }, rand.Uint64N)
		if !ok || used[port] || port < firstNodePort || port > lastNodePort {
			t.Fatalf("port %d: %d %v", i, port, ok)
		}
		if lower := port < firstNodePort+86; lower != (i >= 2768-86) {
			t.Fatalf("port %d is %d: the lower band comes last", i, port)
		}
		used[port] = true
	}
	if port, ok := pickPort(func(p int) bool { return used[p] }, rand.Uint64N); ok {
		t.Errorf("one too many: %d", port)
	}
}
