;;; eval-tests.el --- Tests of the evaluator by itself  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: MIT

;;; Commentary:

;; What can be said of emacs-runtime-mcp-eval.el without a relay: that it
;; prints as Emacs does, thousands of times, and never cuts what it hands
;; on in the wrong place.  The whole way of a call is tested in it/.

;;; Code:

(require 'cl-lib)
(require 'ert)
(require 'emacs-runtime-mcp-eval)

(cl-defstruct eval-tests-record "A record type to be printed." one two)

(defun eval-tests--character ()
  "Return a character of some kind: any, or one that printers treat."
  (pcase (random 8)
    (0 (random 32))
    (1 (+ 127 (random 34)))
    (2 (aref "\"\\'`,;#?.()[] \n\t" (random 15)))
    (3 (+ #x3fff80 (random 128)))
    (4 (+ #xd800 (random #x800)))
    (5 (random #x10ffff))
    (6 (+ #x110000 (random 1000)))
    (_ (+ 32 (random 95)))))

(defun eval-tests--string ()
  "Return a string, unibyte or not, perhaps with text properties."
  (let ((string (if (zerop (random 3))
                    (apply #'unibyte-string
                           (mapcar (lambda (_) (random 256))
                                   (make-list (random 8) nil)))
                  (concat (mapcar (lambda (_) (eval-tests--character))
                                  (make-list (random 8) nil))))))
    (if (and (zerop (random 4)) (> (length string) 0))
        (propertize string 'face 'bold 'odd (list 1 "two"))
      string)))

(defun eval-tests--atom ()
  "Return something that is no list."
  (pcase (random 14)
    (0 (- (random 2000) 1000))
    (1 (* (random most-positive-fixnum) (random most-positive-fixnum) 7))
    (2 (aref [0.0 -0.0 1.5 1e+INF -1e+INF 0.0e+NaN -0.0e+NaN 1e100 3.0e-5]
             (random 9)))
    (3 (intern (replace-regexp-in-string
                "\0" "x" (concat "s" (eval-tests--string)))))
    (4 (make-symbol (concat (eval-tests--string) "u")))
    (5 (intern (aref ["" "1" "-1.5" "a b" "?a" "#x" "nil" ".." "a;b" "1e5" ","]
                     (random 11))))
    (6 (intern (format ":k%d" (random 9))))
    (7 (make-bool-vector (random 20) (zerop (random 2))))
    (8 (let ((pos (copy-marker 1))) (if (zerop (random 2)) pos (make-marker))))
    (9 (aref (vector (current-buffer) (selected-window) (selected-frame)
                     #'car (symbol-function 'when) (lambda (x) x)
                     (byte-compile (lambda (x) (list x "\300\377"))))
             (random 7)))
    (10 (make-char-table 'eval-tests (random 3)))
    (_ (eval-tests--string))))

(defun eval-tests--value (depth)
  "Return a value that nests at most DEPTH deep."
  (if (or (<= depth 0) (zerop (random 3)))
      (eval-tests--atom)
    (let ((some (lambda ()
                  (mapcar (lambda (_) (eval-tests--value (1- depth)))
                          (make-list (random 4) nil)))))
      (pcase (random 7)
        (0 (vconcat (funcall some)))
        (1 (let ((table (make-hash-table :test 'equal)))
             (dolist (key (funcall some) table)
               (puthash key (eval-tests--value (1- depth)) table))))
        (2 (make-eval-tests-record :one (eval-tests--value (1- depth))
                                   :two (funcall some)))
        (3 (append (funcall some) (eval-tests--atom)))
        (4 (list (aref [quote function \` \, \,@] (random 5))
                 (eval-tests--value (1- depth))))
        (_ (funcall some))))))

(defun eval-tests--print (value max)
  "Print VALUE with MAX, with the quotes that may be left out."
  (let ((printed (emacs-runtime-mcp-eval--print value max)))
    (if (eq (cdr printed) 'bare)
        (let ((text (concat "\"" (car printed) "\"")))
          (cons text (length text)))
      printed)))

(ert-deftest eval-tests-prints-as-emacs-does ()
  "What is printed is what `prin1-to-string' gives by default."
  (random "emacs-runtime-mcp")
  (with-temp-buffer
    (dotimes (nth 2000)
      (set-buffer-multibyte (cl-evenp nth))
      (let* ((value (eval-tests--value 4))
             (expected (condition-case err (prin1-to-string value) (error err)))
             (printed (condition-case err
                          (let ((print-length 2) (print-level 1) (print-quoted nil)
                                (print-escape-newlines t) (print-circle t)
                                (print-gensym t) (float-output-format "%.1f"))
                            (eval-tests--print
                             value most-positive-fixnum))
                        (error err))))
        (if (stringp expected)
            (progn
              (should (equal (car printed) expected))
              (should (= (cdr printed) (length expected))))
          (should (equal printed expected)))))))

(ert-deftest eval-tests-keeps-what-was-asked-and-counts-all ()
  "Printing keeps the beginning and counts the rest."
  (dolist (max '(1 2 10 99 100 101))
    (should (equal (eval-tests--print (make-string 98 ?\u00e9) max)
                   (cons (substring (concat "\"" (make-string 98 ?\u00e9) "\"")
                                    0 (min max 100))
                         100)))))

(ert-deftest eval-tests-prints-long-strings-as-emacs-does ()
  "Long strings take another way and come out the same.
Not those with many text properties: these Emacs prints in the order of
a tree that it balances meanwhile, twice never quite the same."
  (random "long")
  (dotimes (_ 200)
    (let ((string (apply #'concat (mapcar (lambda (_) (eval-tests--string))
                                          (make-list 120 nil)))))
      (dolist (string (list (substring-no-properties string)
                            (replace-regexp-in-string ; nothing to escape
                             "[\"\\]" "" (substring-no-properties string))
                            (make-string 300 (random 128))
                            (make-string 300 (+ 128 (random 128)))
                            (apply #'unibyte-string
                                   (mapcar (lambda (_) (random 256))
                                           (make-list 300 nil)))))
        (let ((expected (prin1-to-string string))
              (print-escape-newlines t))
          (dolist (max (list 10 (length expected) most-positive-fixnum))
            (should (equal (eval-tests--print string max)
                           (cons (substring expected 0
                                            (min max (length expected)))
                                 (length expected))))))))))

(ert-deftest eval-tests-makes-any-string-valid ()
  "What leaves is valid Unicode: it survives the way through UTF-8."
  (random "valid")
  (dotimes (_ 2000)
    (let ((string (emacs-runtime-mcp-eval--valid (eval-tests--string))))
      (should (equal (substring-no-properties string)
                     (decode-coding-string
                      (encode-coding-string string 'utf-8-unix) 'utf-8-unix)))
      (should-not (string-match-p "[\ud800-\udfff]" string))))
  (should (equal (emacs-runtime-mcp-eval--valid "\377\u00e9") "\\377\u00e9"))
  (should (equal (emacs-runtime-mcp-eval--valid "\377") "\\377"))
  (should (equal (emacs-runtime-mcp-eval--valid (string #xd800 #x110000))
                 "\ufffd\ufffd")))

(ert-deftest eval-tests-sees-how-deep-a-source-nests ()
  "Nesting is counted outside strings, comments and characters."
  (dolist (case '(("" . 0) ("a" . 0) ("(a)" . 1) ("((a) [b (c)])" . 3)
                  ("\"(((\"" . 0) ("; (((\n(a)" . 1) ("(?\\( ?\\) ?( a)" . 1)
                  ("'''a" . 3) ("('(a))" . 3) ("(a \\( b)" . 1)
                  ("(\"\\\"(((\")" . 1)))
    (should (= (emacs-runtime-mcp-eval--nesting (car case)) (cdr case)))))

(provide 'eval-tests)
;;; eval-tests.el ends here
