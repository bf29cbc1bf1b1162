package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drivers "k8s.io/kubelet/pkg/apis/dra/v1"

	"proa.dev/node/pluginregistration"
)

// callTimeout is the timeout of a driver.
const callTimeout = 45 * time.Second

// services returns the versions of the protocol, the newest first, each with its full name. The messages are the same
// in all.
func services() [][2]string {
	return [][2]string{{drivers.DRAPluginService, "/" + drivers.DRAPlugin_ServiceDesc.ServiceName},
		{"v1beta1.DRAPlugin", "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"}}
}

// driver is a registered driver.
type driver struct {
	endpoint, service string
	// health is the service that reports the health of devices; empty for none.
	health    string
	conn      *grpc.ClientConn
	reachable bool // guarded by the lock of the manager
}

// driver returns the driver of a name that registered last.
func (m *Manager) driver(name string) *driver {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.drivers[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// Register registers a driver; see pluginregistration.Handler.
func (m *Manager) Register(ctx context.Context, i pluginregistration.Info) error {
	var service string
	var known []string
	for _, s := range services() {
		known = append(known, s[0])
		if service == "" && slices.Contains(i.Versions, s[0]) {
			service = s[1]
		}
	}
	if service == "" {
		return fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: none of services supported by the plugin (%q) are supported by the kubelet (%q)", i.Name, i.Endpoint, i.Versions, known)
	}
	conn, err := grpc.NewClient("unix://"+i.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := &driver{endpoint: i.Endpoint, service: service, conn: conn}
	m.drivers[i.Name] = append(m.drivers[i.Name], d)
	m.driversChanged.Send()
	go m.follow(ctx, d) // until the socket of the driver disappears
	if at := slices.IndexFunc(healthServices(), func(s string) bool { return slices.Contains(i.Versions, s) }); at >= 0 {
		d.health = healthServices()[at]
		go m.followHealth(ctx, i.Name, d) // until the socket of the driver disappears
	}
	return nil
}

// Deregister removes the driver of a name that registered first: if there is a newer one, it has replaced that.
func (m *Manager) Deregister(_ context.Context, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.drivers[name]
	if len(all) == 0 {
		return
	}
	all[0].conn.Close()
	m.drivers[name] = all[1:]
	m.driversChanged.Send()
}

func (d *driver) prepare(ctx context.Context, claims []*drivers.Claim) (map[string]*drivers.NodePrepareResourceResponse, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	var r drivers.NodePrepareResourcesResponse
	err := d.conn.Invoke(ctx, d.service+"/NodePrepareResources", &drivers.NodePrepareResourcesRequest{Claims: claims}, &r)
	return r.Claims, err
}

func (d *driver) unprepare(ctx context.Context, claims []*drivers.Claim) (map[string]*drivers.NodeUnprepareResourceResponse, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	var r drivers.NodeUnprepareResourcesResponse
	err := d.conn.Invoke(ctx, d.service+"/NodeUnprepareResources", &drivers.NodeUnprepareResourcesRequest{Claims: claims}, &r)
	return r.Claims, err
}
