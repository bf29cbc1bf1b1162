package trafficbench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
)

// trafficStep is one measurement of the last hop.
type trafficStep struct {
	Name string
	run  func(context.Context, *trafficTrial) error
}

// TrafficSteps returns the measurements, by the number of Services.
func TrafficSteps() []trafficStep {
	return []trafficStep{
		{Name: "change with 10 Services", run: func(ctx context.Context, a *trafficTrial) error { return a.changes(ctx, 10) }},
		{Name: "ready", run: func(ctx context.Context, a *trafficTrial) error { return a.ready(ctx) }},
		{Name: "requests", run: func(ctx context.Context, a *trafficTrial) error { return a.requests(ctx) }},
		{Name: "ingress", run: func(ctx context.Context, a *trafficTrial) error { return a.ingress(ctx) }},
		{Name: "change with 5000 Services", run: func(ctx context.Context, a *trafficTrial) error { return a.changes(ctx, 5000) }},
		{Name: "names", run: func(ctx context.Context, a *trafficTrial) error { return a.ask(ctx) }},
		{Name: "200 Services a second", run: func(ctx context.Context, a *trafficTrial) error { return a.rush(ctx, 200, 10*time.Second) }},
	}
}

// service is a Service without a selector: its endpoints are written by this tool.
func (a *trafficTrial) service(ctx context.Context, name string) (*corev1.Service, error) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	return s, a.services().Create(ctx, s)
}

// slice returns an EndpointSlice that leads a Service to servers.
func (a *trafficTrial) slice(service string, servers ...int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: service,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(whoPort)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, i := range servers {
		s.Endpoints = append(s.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{a.address(i)}, NodeName: new(benchrun.NodeName(0)),
				Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return s
}

// fill makes Services with three endpoints each until there are n.
func (a *trafficTrial) fill(ctx context.Context, n int) error {
	n = a.Set.Scaled(n)
	if a.filled >= n {
		return nil
	}
	first := a.filled
	_, _, err := benchrun.Workers(a.Set.Parallel, time.Hour, n-first, func(i int) error {
		name := filledName(first + i)
		if _, err := a.service(ctx, name); err != nil {
			return err
		}
		return a.slices().Create(ctx, a.slice(name, 0, 1, 2))
	})
	if err != nil {
		return err
	}
	a.filled = n
	var last corev1.Service
	if err := a.services().Get(ctx, filledName(n-1), &last); err != nil {
		return err
	}
	if _, err := a.until(ctx, last.Spec.ClusterIP, ""); err != nil {
		return err
	}
	return a.rest(ctx)
}

func filledName(i int) string { return fmt.Sprintf("svc-%05d", i) }

// pauseBeforeChange is the pause before a single change. Programs that delay changes (kube-proxy by a second) are idle by then, even
// after two.
const pauseBeforeChange = 2200 * time.Millisecond

// rest waits until the service proxy is idle.
func (a *trafficTrial) rest(ctx context.Context) error {
	const little = 30 * time.Millisecond // of processor time in half a second
	return benchrun.WaitUntil(ctx, 2*time.Minute, func() (bool, error) {
		before, err := benchrun.ProcessorTimeWithChildren(a.edge)
		if err != nil {
			return false, err
		}
		if err := wait.Sleep(ctx, 500*time.Millisecond); err != nil {
			return false, err
		}
		after, err := benchrun.ProcessorTimeWithChildren(a.edge)
		return after-before < little, err
	})
}

// until connects from the client until a server of a name answers at port 80 of an address, and returns the time. An
// empty name means any server.
func (a *trafficTrial) until(ctx context.Context, ip, name string) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.Set.Limit)
	defer cancel()
	err = a.client.Do(func() error {
		// Packets to addresses that nobody has yet may get lost without a word, so that one waits only a moment for an answer.
		dialer := net.Dialer{Timeout: 5 * time.Millisecond}
		var last error
		for ctx.Err() == nil {
			var who string
			if who, last = whoIs(ctx, &dialer, ip); last == nil && (name == "" || who == name) {
				at = time.Now()
				return nil
			}
			time.Sleep(200 * time.Microsecond)
		}
		return errors.Join(fmt.Errorf("%s does not answer for %q", ip, name), last)
	})
	return at, err
}

func whoIs(ctx context.Context, dialer *net.Dialer, ip string) (string, error) {
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(ip, "80"))
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// changes moves the one endpoint of a Service between servers, among n Services.
func (a *trafficTrial) changes(ctx context.Context, n int) error {
	if err := a.fill(ctx, n); err != nil {
		return err
	}
	const count = 16
	name := "moving-" + strconv.Itoa(n)
	service, err := a.service(ctx, name)
	if err != nil {
		return err
	}
	slice := a.slice(name, 0)
	if err := a.slices().Create(ctx, slice); err != nil {
		return err
	}
	if _, err := a.until(ctx, service.Spec.ClusterIP, a.name(0)); err != nil {
		return err
	}
	if err := a.rest(ctx); err != nil {
		return err
	}
	before, err := benchrun.ProcessorTimeWithChildren(a.proxy())
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range count {
		to := (i + 1) % 2
		slice.Endpoints = a.slice(name, to).Endpoints
		start := time.Now()
		if err := a.slices().Update(ctx, name, slice); err != nil {
			return err
		}
		at, err := a.until(ctx, service.Spec.ClusterIP, a.name(to))
		if err != nil {
			return err
		}
		took = append(took, at.Sub(start))
		if err := wait.Sleep(ctx, pauseBeforeChange); err != nil {
			return err
		}
	}
	after, err := benchrun.ProcessorTimeWithChildren(a.proxy())
	if err != nil {
		return err
	}
	with := fmt.Sprintf("one endpoint changed, with %d Services, ", a.filled)
	a.R.Add(with+"until in force, p50", "ms", benchrun.Millis(took, 50), benchrun.Lower)
	a.R.Add(with+"until in force, p99", "ms", benchrun.Millis(took, 99), benchrun.Lower)
	a.R.Add(with+"processor time", "ms", float64(after-before)/float64(time.Millisecond)/count, benchrun.Lower)
	return benchrun.AddMemory(a.R, a.edge, fmt.Sprintf("proxy and DNS with %d Services", a.filled))
}

// ready lets Pods become ready, one at a time, and waits until the Service answers.
func (a *trafficTrial) ready(ctx context.Context) error {
	if err := a.fill(ctx, 10); err != nil {
		return err
	}
	const count = 12
	pods := benchrun.ResourceClient{Door: a.Core, Namespace: a.namespace, Resource: "pods"}
	var took []time.Duration
	for i := range count {
		name := "ready-" + strconv.Itoa(i)
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": name},
				Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(whoPort)}},
			},
		}
		if err := a.services().Create(ctx, service); err != nil {
			return err
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: benchrun.NodeName(0), Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if err := pods.Create(ctx, pod); err != nil {
			return err
		}
		if err := a.status(ctx, pod, corev1.ConditionFalse); err != nil {
			return err
		}
		if err := a.rest(ctx); err != nil {
			return err
		}
		if err := wait.Sleep(ctx, pauseBeforeChange); err != nil {
			return err
		}
		start := time.Now()
		if err := a.status(ctx, pod, corev1.ConditionTrue); err != nil {
			return err
		}
		at, err := a.until(ctx, service.Spec.ClusterIP, "")
		if err != nil {
			return err
		}
		took = append(took, at.Sub(start))
	}
	a.R.Add("Pod Ready to first answered request, p50", "ms", benchrun.Millis(took, 50), benchrun.Lower)
	a.R.Add("Pod Ready to first answered request, p99", "ms", benchrun.Millis(took, 99), benchrun.Lower)
	return nil
}

// status reports, in place of the kubelet, that a Pod runs at the address of the first server, and whether it is ready.
func (a *trafficTrial) status(ctx context.Context, pod *corev1.Pod, ready corev1.ConditionStatus) error {
	now := metav1.Now()
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: a.address(0), PodIPs: []corev1.PodIP{{IP: a.address(0)}}, StartTime: &now,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: now},
		},
	}
	return a.Core.Put().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").Body(pod).Do(ctx).Into(pod)
}

// webPort is where servers answer HTTP, and webName the Service that leads there.
const (
	webPort = 8080
	webName = "web"
)

// web makes servers that answer HTTP, and a Service that leads to them.
func (a *trafficTrial) web(ctx context.Context) (*corev1.Service, error) {
	var service corev1.Service
	if a.serving {
		return &service, a.services().Get(ctx, webName, &service)
	}
	for i, pod := range a.pods {
		if _, err := a.start(pod, "web-"+strconv.Itoa(i), a.tool, "serve", "-quiet", "-port", strconv.Itoa(webPort)); err != nil {
			return nil, err
		}
	}
	a.serving = true
	made, err := a.service(ctx, webName)
	if err != nil {
		return nil, err
	}
	slice := a.slice(webName, 0, 1, 2)
	slice.Ports[0].Port = new(int32(webPort))
	return made, a.slices().Create(ctx, slice)
}

// answers waits until a server answers at a URL.
func (a *trafficTrial) answers(ctx context.Context, url string, args ...string) error {
	err := benchrun.WaitUntil(ctx, 30*time.Second, func() (bool, error) {
		args := append([]string{"get", "-timeout", "1s"}, args...)
		return a.client.Command(ctx, a.tool, append(args, url)...).Run() == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

// requests measures HTTP from the client to the servers through a Service, and without it.
func (a *trafficTrial) requests(ctx context.Context) error {
	if err := a.fill(ctx, 10); err != nil {
		return err
	}
	service, err := a.web(ctx)
	if err != nil {
		return err
	}
	direct, through := "http://"+net.JoinHostPort(a.address(0), strconv.Itoa(webPort))+"/", "http://"+service.Spec.ClusterIP+"/"
	for _, way := range []struct{ name, url string }{{"straight to a Pod (the floor)", direct}, {"through the ClusterIP", through}} {
		if err := a.answers(ctx, way.url); err != nil {
			return err
		}
		for _, connections := range []string{"kept", "new"} {
			if err := a.load(ctx, way.name+", "+connections+" connections", connections, way.url); err != nil {
				return err
			}
		}
	}
	return nil
}

// ingress measures the same through the ingress proxy, which runs on the node. Upstream has none; a proxy of a few
// lines takes its place.
func (a *trafficTrial) ingress(ctx context.Context) error {
	const host, port = "web.test", 8081
	if _, err := a.web(ctx); err != nil {
		return err
	}
	bin, err := goBuild(ctx, a.dir, "./test/bench/edge")
	if err != nil {
		return err
	}
	args := []string{"-ingress", strconv.Itoa(port), "-kubeconfig", a.system.Kubeconfig, "-node", benchrun.NodeName(0)}
	if a.upstream {
		at := ":" + strconv.Itoa(webPort)
		args = append(args[:2], "-plain", a.address(0)+at+","+a.address(1)+at+","+a.address(2)+at)
	}
	if _, err := a.start(a.node, "ingress", bin, args...); err != nil {
		return err
	}
	prefix := networkingv1.PathTypePrefix
	err = benchrun.ResourceClient{Door: a.Networking, Namespace: a.namespace, Resource: "ingresses"}.Create(ctx, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: webName,
			Annotations: map[string]string{"kubernetes.io/ingress.class": "proa"}},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix,
				Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: webName, Port: networkingv1.ServiceBackendPort{Number: 80}},
				}}}},
		}}}},
	})
	if err != nil {
		return err
	}
	url := "http://" + net.JoinHostPort(arenaNode, strconv.Itoa(port)) + "/"
	if err := a.answers(ctx, url, "-host", host); err != nil {
		return err
	}
	for _, connections := range []string{"kept", "new"} {
		if err := a.load(ctx, "through the ingress, "+connections+" connections", connections, url, "-host", host); err != nil {
			return err
		}
	}
	return nil
}

// load runs the load generator once.
func (a *trafficTrial) load(ctx context.Context, name, connections, url string, args ...string) error {
	args = append([]string{"load", "-rate", "0", "-workers", "16", "-for", a.Set.Window.String(), "-connections", connections}, args...)
	cmd := a.client.Command(ctx, a.tool, append(args, url)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, tailOf(out))
	}
	var lane struct{ Rate, P50, P99 float64 }
	if err := json.Unmarshal(out, &lane); err != nil {
		return err
	}
	a.R.Add("requests "+name, "/s", lane.Rate, benchrun.Higher)
	a.R.Add("requests "+name+", p50", "ms", lane.P50, benchrun.Lower)
	a.R.Add("requests "+name+", p99", "ms", lane.P99, benchrun.Lower)
	return nil
}

func tailOf(data []byte) string { return string(data[max(0, len(data)-1000):]) }

// rush creates Services with one endpoint at a rate, and waits for some of them.
func (a *trafficTrial) rush(ctx context.Context, rate int, last time.Duration) error {
	const every = 10
	n := int(float64(rate) * last.Seconds() * min(a.Set.Scale, 1))
	if err := a.fill(ctx, 5000); err != nil {
		return err
	}
	if err := a.rest(ctx); err != nil {
		return err
	}
	before, err := benchrun.ProcessorTimeWithChildren(a.proxy())
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards took and errs
	var took []time.Duration
	var errs []error
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		if err := wait.Sleep(ctx, time.Until(start.Add(time.Duration(i)*time.Second/time.Duration(rate)))); err != nil {
			return err
		}
		wg.Go(func() {
			name := fmt.Sprintf("rush-%05d", i)
			service, err := a.service(ctx, name)
			begun := time.Now()
			if err == nil {
				err = a.slices().Create(ctx, a.slice(name, i%3))
			}
			var at time.Time
			if err == nil && i%every == 0 {
				at, err = a.until(ctx, service.Spec.ClusterIP, "")
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			} else if !at.IsZero() {
				took = append(took, at.Sub(begun))
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d Services failed: %w", len(errs), n, errs[0])
	}
	lasted := time.Since(start)
	if err := a.rest(ctx); err != nil {
		return err
	}
	after, err := benchrun.ProcessorTimeWithChildren(a.proxy())
	if err != nil {
		return err
	}
	with := fmt.Sprintf("%d Services a second, among %d, ", rate, a.filled)
	a.R.Add(with+"endpoint written to rule in force, p50", "ms", benchrun.Millis(took, 50), benchrun.Lower)
	a.R.Add(with+"endpoint written to rule in force, p99", "ms", benchrun.Millis(took, 99), benchrun.Lower)
	a.R.Add(with+"processor time of the proxy a Service", "ms", float64(after-before)/float64(time.Millisecond)/float64(n), benchrun.Lower)
	a.R.Add(with+"rate kept", "/s", float64(n)/lasted.Seconds(), benchrun.Higher)
	return nil
}
