package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// stillFeed has no news, and describes pods of the view.
type stillFeed struct{}

func (stillFeed) next() (changed, bool) { return changed{}, false }

func (stillFeed) pod(v *view.View, namespace, name string) (view.Pod, bool) {
	return v.Pod(namespace, name)
}

// keys are what a test presses, by name.
var keys = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab}, "up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown},
	"left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight}, "end": {Code: tea.KeyEnd}, "home": {Code: tea.KeyHome}, "pgup": {Code: tea.KeyPgUp}, "pgdown": {Code: tea.KeyPgDown},
	"backspace": {Code: tea.KeyBackspace}, "shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift},
}

// topStory is the model of a story after some keys.
func (s *story) top(t *testing.T, width, height int, pressed ...string) *topModel {
	o, _, _ := s.options("")
	objects, missing, err := o.connected.List(t.Context(), source.Wanted{AllPods: true})
	if err != nil {
		t.Fatal(err)
	}
	m := newTop(o.now, func(string, map[string]string) bool { return true }, false)
	m.feed, m.missing = stillFeed{}, missing
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(changed{view: view.New(objects)})
	for _, name := range pressed {
		msg, named := keys[name]
		if !named {
			msg = tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
		}
		_, cmd := m.Update(msg)
		if cmd == nil {
			continue
		}
		if reply, ok := cmd().(described); ok {
			m.Update(reply)
		}
	}
	return m
}

// drawn is the screen, its styles as words.
func drawn(m *topModel) string {
	text := strings.Join(m.screen(), "\n")
	text = strings.NewReplacer(bold, "", dim, "", reverse, "> ", red, "! ", reset, "").Replace(text)
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return blankLines(strings.Join(lines, "\n") + "\n")
}

// The whole program reads keys, draws and ends.
func TestTopRuns(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	s := watchStory(t)
	m := s.top(t, 80, 12)
	in, keyboard := io.Pipe()
	var screen output
	done := make(chan error, 1)
	go func() {
		_, err := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(&screen), tea.WithWindowSize(80, 12), tea.WithEnvironment([]string{"TERM=xterm-256color"})).Run()
		done <- err
	}()
	shows := func(text string) {
		t.Helper()
		await.That(t, "the screen to show "+text, func() (bool, string) {
			shown := screen.String()
			return strings.Contains(shown, text), shown
		})
	}
	shows("[1 Configurations]")
	if _, err := keyboard.Write([]byte("3")); err != nil {
		t.Fatal(err)
	}
	shows("-f30c78-0   Free")
	if _, err := keyboard.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	if err := await.Next(t, "the end after q was pressed", done); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// The footer says when the screen is out of date.
func TestTopSaysWhenItIsOutOfDate(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	m := watchStory(t).top(t, 100, 12)
	m.Update(changed{view: m.view, outdated: errors.New("connection\x1b[2J refused")})
	if want := "OUT OF DATE: connection?[2J refused  1 of 1  Tab page"; !strings.Contains(drawn(m), want) {
		t.Errorf("the screen has no %q:\n%s", want, drawn(m))
	}
	m.Update(changed{view: m.view})
	if strings.Contains(drawn(m), "OUT OF DATE") {
		t.Errorf("the screen is said to be out of date when it is not:\n%s", drawn(m))
	}
}

// Each column of a page has an importance, and there are no others.
func TestTopKnowsHowImportantColumnsAre(t *testing.T) {
	for p := range pages {
		m := newTop(time.Now, nil, true)
		m.goTo(p, "")
		names := slices.Sorted(slices.Values(m.cells(nil)[0]))
		if diff := cmp.Diff(names, slices.Sorted(slices.Values(m.importance))); diff != "" {
			t.Errorf("%s (-columns +importance):\n%s", p, diff)
		}
	}
}

// Without a terminal it says what to use instead.
func TestTopWantsATerminal(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := watchStory(t)
	for name, out := range map[string]io.Writer{"a buffer": &bytes.Buffer{}, "a file": file} {
		o, _, _ := s.options("")
		o.streams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: io.Discard}
		root := newRoot(o)
		root.SetArgs([]string{"top"})
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "--watch") {
			t.Errorf("to %s: %v, want an error that names --watch", name, err)
		}
	}
}

// A Configuration that was deleted, of which claims alone are left, is in no namespace: top shows
// it in any, as list does.
func TestTopShowsWhatIsLeftOfAConfiguration(t *testing.T) {
	m := newTop(time.Now, func(namespace string, _ map[string]string) bool { return namespace == "default" }, false)
	left := v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: "cams-8120fe-0"},
		Spec: v1alpha1.SlotClaimSpec{NodeName: "a"}}
	m.Update(changed{view: view.New(view.Objects{Claims: []v1alpha1.SlotClaim{left}})})
	if screen := drawn(m); !strings.Contains(screen, "cams") || !strings.Contains(screen,
		"1 Configurations with problems") {
		t.Errorf("it draws\n%s", screen)
	}
}
