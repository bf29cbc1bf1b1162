package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/test/lab"
)

// Rollouts configures how often a Deployment is rolled out, and the rate of requests meanwhile.
type Rollouts struct {
	Count int
	Rate  float64
	// IngressPort is where the ingress listens; 0 leaves it out.
	IngressPort int
}

// namespace is the namespace of all objects that this package creates.
const namespace = "steady"

// host is the name under which the ingress serves.
const host = "steady.test"

// web is the manifest of the Deployment and its Services. The server continues for a while after its deletion has begun (preStop),
// and finishes the requests in flight.
const web = `
apiVersion: v1
kind: Namespace
metadata: {name: steady}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: steady}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 0}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 20
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        nodeTaintsPolicy: Honor
        labelSelector: {matchLabels: {app: web}}
        matchLabelKeys: [pod-template-hash]
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      containers:
      - name: web
        image: proa.test/tool:1
        args: [serve, -quiet, -drain, 5s]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 3}}}
        resources: {requests: {cpu: 100m}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: steady}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: v1
kind: Service
metadata: {name: web-port, namespace: steady}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: v1
kind: Service
metadata: {name: web-balanced, namespace: steady}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: %d, targetPort: http}]
---
apiVersion: v1
kind: Service
metadata: {name: web-each, namespace: steady}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{port: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: web-alias, namespace: steady}
spec:
  type: ExternalName
  externalName: web.steady.svc.cluster.local
`

const ingress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: steady}
spec:
  rules:
  - host: ` + host + `
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`

const clientPod = `
apiVersion: v1
kind: Pod
metadata: {name: client-%[1]s, namespace: steady}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers: [{name: client, image: proa.test/tool:1, args: [sleep], resources: {requests: {cpu: 200m}}}]
`

// webDeployment is a Deployment that serves, with the clients that send requests to it.
type webDeployment struct {
	*Cluster
	nodes       []Node
	outside     *lab.Net
	urls        map[string]string // the names of URLs in reports
	cluster     string            // the URL of the cluster IP
	ports       []string          // the URLs of the node port
	balancerURL string            // the URL of the load balancer
}

// deploy creates the Deployment, its Services, the client Pod and the network outside the cluster.
func (c *Cluster) deploy(ctx context.Context, withIngress bool) (*webDeployment, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	// A number of its own, since others may have a load balancer at the same address.
	port := 20000 + rand.IntN(10000)
	text := fmt.Sprintf(web, port)
	if withIngress {
		text += "---" + ingress
	}
	for _, n := range nodes {
		text += "---" + fmt.Sprintf(clientPod, n.Name)
	}
	if _, err := c.kubectl(ctx, text, "apply", "-f", "-"); err != nil {
		return nil, err
	}
	if _, err := c.kubectl(ctx, "", "rollout", "status", "-n", namespace, "deployment/web", "--timeout=120s"); err != nil {
		return nil, err
	}
	if _, err := c.kubectl(ctx, "", "wait", "-n", namespace, "--for=condition=Ready", "pods", "-l", "!app", "--timeout=60s"); err != nil {
		return nil, err
	}
	st := &webDeployment{Cluster: c, nodes: nodes, urls: map[string]string{}}
	var inside, open corev1.Service
	if err := errors.Join(c.get(ctx, &inside, "service", "-n", namespace, "web"),
		c.get(ctx, &open, "service", "-n", namespace, "web-port")); err != nil {
		return nil, err
	}
	if st.balancerURL, err = st.balancer(ctx, port); err != nil {
		return nil, err
	}
	st.cluster = "http://" + inside.Spec.ClusterIP + "/"
	st.urls[st.cluster] = "ClusterIP"
	for i, n := range nodes {
		url := "http://" + net.JoinHostPort(n.Address, strconv.Itoa(int(open.Spec.Ports[0].NodePort))) + "/"
		st.ports = append(st.ports, url)
		st.urls[url] = fmt.Sprint("NodePort of node ", i+1)
	}
	return st, st.outsideNetwork()
}

// balancer waits until the load balancer has an address.
func (st *webDeployment) balancer(ctx context.Context, port int) (url string, err error) {
	err = eventually(ctx, time.Minute, "the load balancer", func() error {
		var s corev1.Service
		if err := st.get(ctx, &s, "service", "-n", namespace, "web-balanced"); err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return errors.New("the Service has no address")
		}
		url = "http://" + net.JoinHostPort(s.Status.LoadBalancer.Ingress[0].IP, strconv.Itoa(port)) + "/"
		return nil
	})
	st.urls[url] = "LoadBalancer"
	return url, err
}

// podNames returns the URLs that only Pods can resolve: those of the headless Service and of the Service of type ExternalName.
func (st *webDeployment) podNames() []string {
	each, alias := "http://web-each."+namespace+".svc.cluster.local:8080/", "http://web-alias."+namespace+".svc.cluster.local/"
	st.urls[each], st.urls[alias] = "headless, by name", "ExternalName"
	return []string{each, alias}
}

// outsideNetwork creates a network namespace that is connected to the machine, with addresses that are reserved for tests. Its
// number is random, because other tests may do the same at the same time.
func (st *webDeployment) outsideNetwork() (err error) {
	if st.outside, err = lab.New(); err != nil {
		return err
	}
	number := rand.IntN(1 << 15)
	address := func(last int) string {
		return fmt.Sprintf("198.%d.%d.%d", 18+number>>14, number>>6&0xff, number<<2&0xff+last)
	}
	err = lab.Link(lab.End{Net: st.outside, Name: "eth0", Addrs: []string{address(1) + "/30"}},
		lab.End{Net: &lab.Net{}, Name: fmt.Sprint("steady", number), Addrs: []string{address(2) + "/30"}})
	if err != nil {
		return err
	}
	return st.outside.IP("route add default via " + address(2))
}

// close removes the Deployment and the network.
func (st *webDeployment) close(ctx context.Context) error {
	_, err := st.kubectl(context.WithoutCancel(ctx), "", "delete", "namespace", namespace, "--wait=false")
	return errors.Join(err, st.outside.Close())
}

// traffic starts clients on nodes, in Pods and outside the cluster, which share the rate.
func (st *webDeployment) traffic(ctx context.Context, rate float64, ingressPort int) (all Clients, err error) {
	type way struct {
		place
		host string
		urls []string
	}
	open := append([]string{st.balancerURL}, st.ports...)
	ways := []way{{st.onNode(), "", append([]string{st.cluster}, open...)}, {st.from(st.outside), "", open}}
	for i, n := range st.nodes {
		ways = append(ways, way{st.inPod(fmt.Sprint("Pod on node ", i+1), namespace, "client-"+n.Name), "",
			slices.Concat([]string{st.cluster}, open, st.podNames())})
	}
	if ingressPort > 0 {
		url := "http://" + net.JoinHostPort(st.nodes[0].Address, strconv.Itoa(ingressPort)) + "/"
		st.urls[url] = "Ingress"
		ways = append(ways, way{st.from(st.outside), host, []string{url}})
	}
	for _, w := range ways {
		client, err := w.start(ctx, rate/float64(len(ways)), w.host, w.urls...)
		if err != nil {
			_, stop := all.Stop()
			return nil, errors.Join(err, stop)
		}
		all = append(all, client)
	}
	return all, nil
}

// ready waits for the ingress, which opens its port when there is an Ingress.
func (st *webDeployment) ready(ctx context.Context, ingressPort int) error {
	if ingressPort == 0 {
		return nil
	}
	return eventually(ctx, time.Minute, "the ingress", func() error {
		var i networkingv1.Ingress
		if err := st.get(ctx, &i, "ingress", "-n", namespace, "web"); err != nil {
			return err
		}
		if len(i.Status.LoadBalancer.Ingress) == 0 {
			return errors.New("the Ingress has no address")
		}
		url := "http://" + net.JoinHostPort(st.nodes[0].Address, strconv.Itoa(ingressPort)) + "/"
		out, err := st.from(st.outside).command(ctx, []string{"get", "-host", host, url}).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// Outcome has the results of the requests.
type Outcome struct {
	Totals   []Total
	Names    map[string]string // of URLs
	Failures []Failure
	Took     []time.Duration // each rollout
}

// Run rolls out the Deployment again and again under traffic.
func (r Rollouts) Run(ctx context.Context, c *Cluster) (_ *Outcome, err error) {
	st, err := c.deploy(ctx, r.IngressPort > 0)
	if st != nil {
		defer func() { err = errors.Join(err, st.close(ctx)) }()
	}
	if err != nil {
		return nil, err
	}
	if err := st.ready(ctx, r.IngressPort); err != nil {
		return nil, err
	}
	clients, err := st.traffic(ctx, r.Rate, r.IngressPort)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Names: st.urls}
	err = r.roll(ctx, st, clients, out)
	totals, stopped := clients.Stop()
	out.Totals, out.Failures = totals, clients.Failures()
	return out, errors.Join(err, stopped)
}

func (r Rollouts) roll(ctx context.Context, st *webDeployment, clients Clients, out *Outcome) error {
	for i := range r.Count {
		start := time.Now()
		// The other tag is the same program; a rollout is what an upgrade is.
		image := "web=proa.test/tool:" + strconv.Itoa(2-i%2)
		if _, err := st.kubectl(ctx, "", "set", "image", "-n", namespace, "deployment/web", image); err != nil {
			return err
		}
		if _, err := st.kubectl(ctx, "", "rollout", "status", "-n", namespace, "deployment/web", "--timeout=180s"); err != nil {
			return err
		}
		if err := st.waitUntilTerminated(ctx); err != nil {
			return err
		}
		out.Took = append(out.Took, time.Since(start))
		st.logf("rollout %d of %d: %.1f s, %d requests have failed so far", i+1, r.Count, time.Since(start).Seconds(),
			len(clients.Failures()))
	}
	return nil
}

// waitUntilTerminated waits until no Pod of the Deployment is terminating any more.
func (st *webDeployment) waitUntilTerminated(ctx context.Context) error {
	return eventually(ctx, time.Minute, "the end of the old Pods", func() error {
		var pods corev1.PodList
		if err := st.get(ctx, &pods, "pods", "-n", namespace, "-l", "app=web"); err != nil {
			return err
		}
		if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }) {
			return errors.New("some are still there")
		}
		return nil
	})
}

// Text returns the outcome as text for the terminal.
func (o *Outcome) Text() string {
	var b strings.Builder
	b.WriteString(Table(o.Totals, o.Names))
	for _, f := range o.Failures[:min(len(o.Failures), 20)] {
		fmt.Fprintf(&b, "\n%s from %s to %s, new connection %t, after %.0f ms: %s", f.At.UTC().Format("15:04:05.000"), f.From,
			o.Names[f.URL], f.New, f.Took, f.Error)
	}
	return b.String()
}
