package assignment

import (
	"strings"
	"testing"
)

func TestUnreadable(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "it is empty",
		" \n":                              "it is empty",
		`{`:                                "it is cut off after byte 1",
		`{"runningcontainer":`:             "it is cut off after byte 20",
		`{"podname":"p`:                    "it is cut off after byte 13",
		`{"requests":{}}}`:                 "invalid character '}' after top-level value at byte 16",
		`{'requests':{}}`:                  `invalid character '\'' looking for beginning of object key string at byte 2`,
		`[1]`:                              "want an object, it is an array at byte 1",
		`7`:                                "want an object, it is a number at byte 1",
		`{"runningcontainer":7}`:           "runningcontainer: want an object, it is a number at byte 21",
		`{"runningcontainer":{"main":[]}}`: "runningcontainer: want an object, it is an array at byte 29",
		`{"runningcontainer":{"main":{"requests":{"a/b":"1"}}}}`: "runningcontainer.requests: want a whole number, it is a string at byte 50",
		`{"runningcontainer":{"main":{"requests":{"a/b":1.5}}}}`: "runningcontainer.requests: want a whole number, it is the number 1.5 at byte 50",
		`{"initcontainer":{"main":{"scorer":{"a/b":{}}}}}`:       "initcontainer.scorer: want a whole number, it is an object at byte 43",
		`{"requests":{"a/b":true}}`:                              "requests: want a whole number, it is a bool at byte 23",
		`{"podname":3}`:                                          "podname: want a string, it is a number at byte 12",
		`{"requests":{"a/b":` + strings.Repeat("9", 80) + `}}`:   "requests: want a whole number, it is the number " + strings.Repeat("9", 57) + "… at byte 99",
	} {
		const begin = "annotation KubeDevice/DeviceInfo is not the JSON of a PodInfo: "
		if _, err := Input(map[string]string{Annotation: text}); err == nil || err.Error() != begin+want {
			t.Errorf("%s:\n got %v\nwant %s%s", text, err, begin, want)
		}
	}
}
