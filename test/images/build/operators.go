package build

import "proa.dev/test/images/oci"

// The tags under which the manifests of operators ask for them: the versions that test/upstream pins.
const (
	certManagerTag   = ":v1.11.5"
	metricsServerTag = ":v0.9.0"
)

// certManagerPrograms are the parts of cert-manager, an image each.
func certManagerPrograms() []string {
	return []string{"cert-manager-controller", "cert-manager-webhook", "cert-manager-cainjector", "cert-manager-ctl"}
}

func cookCertManager(in inputs) ([]oci.Image, error) {
	var out []oci.Image
	for _, name := range certManagerPrograms() {
		i, err := oneProgram(in, name, "1000", "quay.io/jetstack/"+name+certManagerTag)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

func cookMetricsServer(in inputs) ([]oci.Image, error) {
	i, err := oneProgram(in, "metrics-server", "65534", k8s+"metrics-server/metrics-server"+metricsServerTag)
	return []oci.Image{i}, err
}

// oneProgram makes an image that holds one program, and runs it as a user.
func oneProgram(in inputs, program, user, name string) (oci.Image, error) {
	t := oci.Tree{}
	t.Put(program, 0o755, in.programs[program])
	t.Dir(0o1777, "tmp")
	layer, err := t.Layer()
	process := oci.Process{User: user, Env: []string{usualPath}, Entrypoint: []string{"/" + program}, WorkingDir: "/"}
	return oci.Image{Names: []string{name}, Process: process, Layers: []oci.Layer{layer}}, err
}
