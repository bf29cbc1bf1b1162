package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/version"

	"proa.dev/node/pluginregistration"
)

// driver is a connection to a CSI driver.
type driver struct {
	name string
	conn *grpc.ClientConn
	spec.NodeClient

	// mu guards can, the capabilities, which are asked for once.
	mu           sync.Mutex
	capabilities map[spec.NodeServiceCapability_RPC_Type]bool
}

// supported checks that a driver speaks a supported version: any 1.x.
func supported(i pluginregistration.Info) error {
	for _, text := range i.Versions {
		if v, err := version.ParseGeneric(text); err == nil && v.Major() == 1 {
			return nil
		}
	}
	return fmt.Errorf("validation failed for CSI Driver %s at endpoint %s: none of the versions specified %q are supported", i.Name, i.Endpoint, i.Versions)
}

func dial(name, endpoint string) (*driver, error) {
	conn, err := grpc.NewClient("unix://"+strings.TrimPrefix(endpoint, "unix://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("open the CSI driver %s: %w", name, err)
	}
	return &driver{name: name, conn: conn, NodeClient: spec.NewNodeClient(conn)}, nil
}

func (d *driver) close() error { return d.conn.Close() }

// hasCapability reports whether a driver has a capability.
func (d *driver) hasCapability(ctx context.Context, what spec.NodeServiceCapability_RPC_Type) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.capabilities == nil {
		got, err := d.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
		if err != nil {
			return false, err
		}
		d.capabilities = map[spec.NodeServiceCapability_RPC_Type]bool{}
		for _, c := range got.GetCapabilities() {
			d.capabilities[c.GetRpc().GetType()] = true
		}
	}
	return d.capabilities[what], nil
}

// info returns what a driver says about the node.
func (d *driver) info(ctx context.Context) (*spec.NodeGetInfoResponse, error) {
	got, err := d.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
	if err != nil {
		return nil, err
	}
	if got.GetNodeId() == "" {
		return nil, errors.New("error adding CSI driver node info: driverNodeID must not be empty")
	}
	return got, nil
}

// isFinal reports whether the driver has finished the operation after this error. Other errors leave that open.
func isFinal(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// isInfeasible reports whether a retry is useless.
func isInfeasible(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return true
	}
	return false
}
