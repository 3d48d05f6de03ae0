// Command forward listens on the host's loopback and passes every connection on
// to an address inside a network namespace. It is how kubectl and tests reach a
// cluster's API server without any interface or route on the host.
package main

import (
	"errors"
	"flag"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	addressFile := flag.String("address-file", "", "listen on the address in this file; when there is none, on a free port, and write it there")
	ns := flag.String("netns", "", "network namespace to dial in, a path")
	to := flag.String("to", "", "address to dial there, IP:port")
	flag.Parse()
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)

	listener, err := listen(*addressFile)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s, leading to %s in %s", listener.Addr(), *to, *ns)
	d := startDialer(*ns, *to)
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(client, d)
	}
}

// listen uses the same address after a restart, so that kubeconfigs stay right.
func listen(addressFile string) (net.Listener, error) {
	address, err := os.ReadFile(addressFile)
	if err == nil {
		return net.Listen("tcp", strings.TrimSpace(string(address)))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	temp := addressFile + ".new"
	if err := os.WriteFile(temp, []byte(l.Addr().String()), 0o644); err != nil {
		return nil, err
	}
	return l, os.Rename(temp, addressFile)
}

type dialed struct {
	conn net.Conn
	err  error
}

// dialer hands out connections made on the one thread that sits in the
// namespace.
type dialer chan chan dialed

func startDialer(ns, to string) dialer {
	d := make(dialer)
	go func() {
		runtime.LockOSThread() // for good: the thread's namespace is changed
		f, err := os.Open(ns)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			log.Fatalf("enter network namespace %s: %v", ns, err)
		}
		for reply := range d {
			// An IP needs no resolver, so Dial stays on this thread.
			conn, err := net.Dial("tcp", to)
			reply <- dialed{conn, err}
		}
	}()
	return d
}

func serve(client net.Conn, d dialer) {
	defer client.Close()
	reply := make(chan dialed, 1)
	d <- reply
	server := <-reply
	if server.err != nil {
		log.Printf("for %s: %v", client.RemoteAddr(), server.err)
		return
	}
	defer server.conn.Close()
	done := make(chan struct{})
	go func() {
		copyHalf(server.conn, client)
		close(done)
	}()
	copyHalf(client, server.conn)
	<-done
}

// copyHalf passes one direction on, and its end: an attached `kubectl exec`
// may close its input long before the output ends.
func copyHalf(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if err != nil {
		to.Close()
		from.Close()
		return
	}
	_ = to.(*net.TCPConn).CloseWrite()
}
