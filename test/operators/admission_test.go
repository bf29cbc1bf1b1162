package operators

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/proatest"
)

const latestRefused = "images must not have the tag latest"

// injectSidecar is the decision of a mutating webhook: a JSON patch that adds a proxy container to a Pod that has none.
func injectSidecar(q *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var pod corev1.Pod
	if err := json.Unmarshal(q.Object.Raw, &pod); err != nil {
		return deny(err.Error())
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == "proxy" {
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
	}
	patch := `{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"envoy:1.30","ports":[{"containerPort":15001}]}}`
	if pod.Annotations == nil {
		patch += `,{"op":"add","path":"/metadata/annotations","value":{}}`
	}
	patch += `,{"op":"add","path":"/metadata/annotations/example.com~1injected","value":"proxy"}`
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte("[" + patch + "]"), PatchType: new(admissionv1.PatchTypeJSONPatch)}
}

// denyLatest is the decision of a validating webhook.
func denyLatest(q *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var d appsv1.Deployment
	if err := json.Unmarshal(q.Object.Raw, &d); err != nil {
		return deny(err.Error())
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		if strings.HasSuffix(c.Image, ":latest") {
			return deny(latestRefused)
		}
	}
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func deny(why string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: why}}
}

// serveAdmission serves both webhooks over HTTPS, and returns the manifest that registers them.
func serveAdmission(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, decide := range map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{"/sidecar": injectSidecar,
		"/deny-latest": denyLatest} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(w, "this is no AdmissionReview", http.StatusBadRequest)
				return
			}
			review.Response = decide(review.Request)
			review.Response.UID, review.Request = review.Request.UID, nil
			_ = json.NewEncoder(w).Encode(&review)
		})
	}
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return strings.NewReplacer("$URL", s.URL, "$CA", base64.StdEncoding.EncodeToString(ca)).Replace(readFile(t, "testdata/webhooks.yaml"))
}

// admissionResult is what users see of the sidecar injector and the deny policy.
type admissionResult struct {
	containers string // of each Pod: names, images, ports and pull policies
	refusal    string
}

// TestSidecarAndDeny applies a Deployment with a sidecar injector and a policy that denies images, once as webhooks and once as CEL
// policies, and checks that users see the same.
func TestSidecarAndDeny(t *testing.T) {
	t.Parallel()
	ways := map[string]string{"webhooks": serveAdmission(t), "policies": readFile(t, "testdata/policies.yaml")}
	refused := map[string]string{
		"webhooks": `error: failed to create deployment: admission webhook "deny-latest.example.com" denied the request: `,
		"policies": `error: failed to create deployment: deployments.apps "late" is forbidden: ValidatingAdmissionPolicy 'deny-latest' with binding 'deny-latest' denied request: `,
	}
	want := admissionResult{
		containers: strings.Repeat("nginx nginx:1.27 80 IfNotPresent, proxy envoy:1.30 15001 IfNotPresent, proxy Running\n", 3),
		refusal:    latestRefused + "\n",
	}
	for name, manifest := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := admitUnder(t, manifest)
			refusal, ok := strings.CutPrefix(got.refusal, refused[name])
			if !ok {
				t.Errorf("the refusal is %q, and should begin with %q", got.refusal, refused[name])
			}
			if got.refusal = refusal; got != want {
				t.Errorf("a user sees\n%+v\nand should see\n%+v", got, want)
			}
		})
	}
}

// admitUnder applies a manifest of webhooks or policies, and then the Deployment.
func admitUnder(t *testing.T, manifest string) admissionResult {
	t.Helper()
	k := newKubectl(t, proatest.Start(t, proatest.Memory(), proatest.Simulate(1)).Kubeconfig)
	late := []string{"create", "deployment", "late", "--image=nginx:latest"}
	k.run(t, manifest, "apply", "-f", "-")
	k.until(t, latestRefused, append(late, "--dry-run=server")...)
	k.until(t, "proxy", "run", "one", "--image=nginx", "--dry-run=server", "-o", "yaml")

	k.run(t, "", "apply", "-f", "testdata/web.yaml")
	k.run(t, "", "rollout", "status", "deployment/web", "--timeout=2m")
	pods := k.run(t, "", "get", "pods", "-l", "app=web", "-o", `jsonpath={range .items[*]}{range .spec.containers[*]}`+
		`{.name} {.image} {.ports[*].containerPort} {.imagePullPolicy}, {end}{.metadata.annotations.example\.com/injected} {.status.phase}{"\n"}{end}`)

	// An update to a denied image is rejected, and the Deployment is not changed.
	if out, err := k.try(t, "", "set", "image", "deployment/web", "nginx=nginx:latest"); err == nil ||
		!strings.Contains(out, latestRefused) {
		t.Errorf("a change to latest is answered with %v: %s", err, out)
	}
	if out := k.run(t, "", "apply", "-f", "testdata/web.yaml"); out != "deployment.apps/web unchanged\n" {
		t.Errorf("applied again, kubectl says %q", out)
	}
	refusal, err := k.try(t, "", late...)
	if err == nil {
		t.Errorf("a Deployment with an image that has the tag latest is created")
	}
	return admissionResult{containers: pods, refusal: refusal}
}
