package remote

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// warningsField is the number of DiscoverResponse.warnings.
const warningsField protowire.Number = 1001

// list is an encoded DiscoverResponse. release is to be called once it is no longer held.
type list struct {
	encoded []byte
	release func()
}

// received is what a stream has sent.
type received struct {
	// newest has the newest list that was not taken yet; it is closed when the stream has ended.
	newest chan list
	err    error // why the stream has ended; to be read when newest is closed
}

// receive reads the stream until it ends, as fast as it comes. A list is all that there is, so the
// newest replaces one that was not taken. Warnings are passed on at once: a list that is replaced
// may have had them.
func receive(p *pipe, warnings *warnings) *received {
	r := &received{newest: make(chan list, 1)}
	go func() {
		defer close(r.newest)
		defer func() {
			if is := recover(); is != nil { // It would end the whole process here.
				r.err = fmt.Errorf("a message that kubecri cannot read: panic: %v", is)
			}
		}()
		for {
			next, err := p.next(listed)
			if err != nil {
				r.err = err
				return
			}
			warnings.passAll(next.encoded)
			select {
			case older := <-r.newest:
				older.release()
			default:
			}
			r.newest <- next // which has room: nobody else sends
		}
	}()
	return r
}

// discard waits until the stream has ended.
func (r *received) discard() {
	for list := range r.newest {
		list.release()
	}
}

// warnings passes on those that are new.
type warnings struct {
	warn   func(string) // may be nil
	passed []string
}

// passAll passes on the warnings of a response. One that is malformed is reported when it is taken.
func (w *warnings) passAll(response []byte) {
	_ = eachField(response, func(number protowire.Number, value []byte) error {
		if number == warningsField {
			w.pass(value)
		}
		return nil
	})
}

func (w *warnings) pass(message []byte) {
	if w.warn == nil || len(message) == 0 || len(w.passed) == maxWarnings {
		return
	}
	text := shorten(string(message[:min(len(message), maxWarningBytes+1)]))
	if !slices.Contains(w.passed, text) {
		w.passed = append(w.passed, text)
		w.warn(text)
	}
}
