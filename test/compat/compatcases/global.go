package compatcases

import "net/http"

// Accept values of the aggregated discovery documents.
const (
	aggregated     = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedBeta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)

// globalCases are about the server as a whole.
func globalCases(resources []*resource) []*TestCase {
	cases := []*TestCase{discoveryCase(resources), openAPICase(resources), bootstrapCase(), serverCase()}
	return cases
}

func get(name, path, accept string) Step {
	return Step{Name: name, Build: func(*State) *Call { return &Call{Method: http.MethodGet, path: path, accept: accept} }}
}

func discoveryCase(resources []*resource) *TestCase {
	c := &TestCase{Name: "discovery", Alone: true}
	for _, path := range []string{"/api", "/apis", "/api/v1"} {
		c.Steps = append(c.Steps, get("legacy "+path, path, ""), get("legacy as YAML "+path, path, asYAML),
			get("legacy as protobuf "+path, path, asProtobuf))
	}
	seen := map[string]bool{}
	for _, r := range resources {
		if r.group == "" || seen[r.apiVersion()] {
			continue
		}
		seen[r.apiVersion()] = true
		c.Steps = append(c.Steps, get("legacy "+r.group, "/apis/"+r.group, ""), get("legacy "+r.apiVersion(), "/apis/"+r.apiVersion(), ""))
	}
	for _, path := range []string{"/api", "/apis"} {
		c.Steps = append(c.Steps, get("aggregated "+path, path, aggregated), get("aggregated beta "+path, path, aggregatedBeta),
			get("aggregated with fallback "+path, path, aggregated+","+aggregatedBeta+",application/json"))
	}
	for _, path := range []string{"/apis/nonsense.example.com", "/apis/apps/v9", "/apis/apps/v1/nonsense", "/api/v2", "/nonsense",
		"/apis/apps/v1/", "/api/"} {
		c.Steps = append(c.Steps, get("missing "+path, path, ""))
	}
	return c
}

func openAPICase(resources []*resource) *TestCase {
	c := &TestCase{Name: "openapi", Alone: true}
	c.Steps = append(c.Steps, get("v3 index", "/openapi/v3", ""), get("v2", "/openapi/v2", ""))
	seen := map[string]bool{}
	for _, r := range resources {
		path := "/openapi/v3/api/v1"
		if r.group != "" {
			path = "/openapi/v3/apis/" + r.apiVersion()
		}
		if !seen[path] {
			seen[path] = true
			c.Steps = append(c.Steps, get("v3 "+r.apiVersion(), path, ""))
		}
	}
	return c
}

// bootstrapCase compares what a new cluster contains, object by object.
func bootstrapCase() *TestCase {
	c := &TestCase{Name: "bootstrap", Alone: true}
	for _, path := range []string{
		"/api/v1/namespaces?fieldSelector=metadata.name=default", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/kube-public",
		"/api/v1/namespaces/kube-node-lease",
		"/api/v1/namespaces/default/services/kubernetes", "/api/v1/namespaces/default/endpoints/kubernetes", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
		"/api/v1/namespaces/default/serviceaccounts/default", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"/apis/rbac.authorization.k8s.io/v1/roles", "/apis/rbac.authorization.k8s.io/v1/rolebindings",
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
		"/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/networking.k8s.io/v1/servicecidrs", "/apis/networking.k8s.io/v1/ipaddresses",
		"/apis/apiregistration.k8s.io/v1/apiservices", "/api/v1/componentstatuses",
	} {
		c.Steps = append(c.Steps, get(path, path, ""))
	}
	return c
}

func serverCase() *TestCase {
	c := &TestCase{Name: "server", Alone: true}
	for _, path := range []string{"/version", "/version/", "/healthz", "/livez", "/readyz", "/healthz/ping", "/livez/ping", "/readyz/ping",
		"/readyz/nonsense", "/", "/.well-known/openid-configuration", "/metrics/nonsense"} {
		c.Steps = append(c.Steps, get(path, path, ""))
	}
	impersonate := func(name, path string, header map[string]string) Step {
		return Step{Name: name, Build: func(*State) *Call { return &Call{Method: http.MethodGet, path: path, header: header} }}
	}
	for _, path := range []string{"/api/v1/namespaces/default/pods", "/api/v1/nodes", "/apis/apps/v1/namespaces/default/deployments/x",
		"/apis/apps/v1/namespaces/default/deployments/x/scale", "/metrics", "/nonsense", "/version", "/readyz", "/api", "/openapi/v2"} {
		if path != "/openapi/v2" && path != "/readyz" {
			c.Steps = append(c.Steps, impersonate("as someone "+path, path, map[string]string{"Impersonate-User": "someone"}))
		}
	}
	c.Steps = append(c.Steps,
		impersonate("as a service account", "/api/v1/namespaces/default/pods",
			map[string]string{"Impersonate-User": "system:serviceaccount:default:default"}),
		impersonate("group without user", "/api/v1/namespaces/default/pods", map[string]string{"Impersonate-Group": "some-group"}),
		impersonate("as a viewer", "/api/v1/namespaces/default/pods", map[string]string{"Impersonate-User": "system:anonymous"}),
		impersonate("bad token", "/api/v1/namespaces/default/pods", map[string]string{"Authorization": "Bearer nonsense"}),
	)
	return c
}
