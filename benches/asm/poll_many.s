    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    push rax
    mov r8,rdx
    mov rax,rsi
    mov rcx,QWORD PTR [rdi+0x90]
    mov ecx,DWORD PTR [rcx]
    cmp ecx,0x1
    jne 13
    test rax,rax
    je 17
    mov r9,QWORD PTR [rdi+0x78]
    xor edx,edx
    mov rsi,QWORD PTR [_ZN7mlx5_cq4kind5FACTS]
    jmp 2
0:
    mov r9d,DWORD PTR [r9+0x2c]
    bswap r9d
1:
    xor r14d,r14d
    cmp r10b,0x1
    sete r14b
    add r11,r9
    add r11,r14
    add QWORD PTR [r8],r11
    inc rdx
    mov r9,rbx
    cmp rax,rdx
    je 19
2:
    mov r10,QWORD PTR [r9+0x38]
    bswap r10
    xor r10,QWORD PTR [rdi+0x58]
    test r10b,0x1
    jne 16
    mov r11d,DWORD PTR [r9+0x20]
    mov rcx,r10
    shr rcx,0x10
    cmp r10b,0x3
    ja 3
    cmp QWORD PTR [rdi+0x30],r11
    jne 5
    mov rbx,QWORD PTR [rdi+0x38]
    movzx ebp,WORD PTR [rbx+0x80]
    movzx r15d,WORD PTR [rbx]
    cmp r15w,bp
    jne 6
    jmp 14
3:
    test r10b,0xc
    jne 14
    lea ebx,[r10-0x10]
    cmp bl,0x40
    jae 14
    cmp QWORD PTR [rdi+0x40],r11
    jne 8
    mov r14,QWORD PTR [rdi+0x48]
    mov rbx,QWORD PTR [r14+0x198]
    cmp DWORD PTR [r14+0x190],0x1
    jne 9
4:
    movzx r14d,cx
    cmp QWORD PTR [rbx+0x28],r14
    jbe 14
    mov r15,QWORD PTR [rbx+0x20]
    movzx r11d,BYTE PTR [r15+r14*1]
    test r11b,r11b
    je 14
    mov r11,QWORD PTR [rbx+0x10]
    mov r11,QWORD PTR [r11+r14*8]
    xor r12d,r12d
    xchg BYTE PTR [r15+r14*1],r12b
    test r12b,r12b
    je 14
    movzx r14d,cx
    mov r15d,r14d
    shr r15d,0x6
    mov r12,QWORD PTR [rbx+0x30]
    mov r13d,0x1
    shl r13,cl
    lock or QWORD PTR [r12+r15*8],r13
    mov rcx,QWORD PTR [rbx+0x40]
    mov BYTE PTR [rcx+r15*1],0x1
    mov rcx,QWORD PTR [rbx+0x50]
    shr r14d,0xa
    mov BYTE PTR [rcx+r14*1],0x1
    jmp 10
5:
    mov rbx,QWORD PTR [rdi+0xa8]
    mov r14d,r11d
    bswap r14d
    mov r10d,DWORD PTR [rdi+0xd4]
    mov rbx,QWORD PTR [rbx+0x10]
    mov r15d,r14d
    shr r15d,0x9
    and r15d,0x7ff8
    mov r15,QWORD PTR [rbx+r15*1]
    test r15,r15
    je 14
    and r14d,0xfff
    shl r14d,0x4
    mov rbx,QWORD PTR [r15+r14*1+0x8]
    mov r12,QWORD PTR [r15+r14*1]
    mov r14,QWORD PTR [r15+r14*1+0x8]
    cmp rbx,0x2
    jb 14
    cmp r14,rbx
    jne 14
    cmp r10d,r12d
    jne 14
    mov QWORD PTR [rdi+0x30],r11
    mov QWORD PTR [rdi+0x38],rbx
    movzx ebp,WORD PTR [rbx+0x80]
    movzx r15d,WORD PTR [rbx]
    cmp r15w,bp
    je 14
6:
    movzx r10d,bp
    mov r14,QWORD PTR [rbx+0x100]
    and r10d,DWORD PTR [rbx+0x110]
    shl r10d,0x4
    mov r11,QWORD PTR [r14+r10*1]
    mov r10,QWORD PTR [r14+r10*1+0x8]
    mov r12,r10
    shr r12,0x28
    cmp cx,r12w
    je 7
    mov r14d,ecx
    sub r14d,r12d
    sub r15d,ebp
    cmp r14w,r15w
    jae 14
    add r14d,ebp
    mov r10,QWORD PTR [rbx+0x100]
    mov r11d,r14d
    and r11d,DWORD PTR [rbx+0x110]
    movzx r15d,r11w
    shl r15d,0x4
    mov r11,QWORD PTR [r10+r15*1]
    mov r10,QWORD PTR [r10+r15*1+0x8]
    mov r15,r10
    shr r15,0x28
    mov ebp,r14d
    cmp cx,r15w
    jne 14
7:
    inc ebp
    mov WORD PTR [rbx+0x80],bp
    shr r10,0x20
    jmp 11
8:
    mov r14,QWORD PTR [rdi+0xa8]
    mov r15d,r11d
    bswap r15d
    mov ebx,DWORD PTR [rdi+0xd4]
    mov r14,QWORD PTR [r14+0x10]
    mov r12d,r15d
    shr r12d,0x9
    and r12d,0x7ff8
    mov r13,QWORD PTR [r14+r12*1]
    test r13,r13
    je 14
    and r15d,0xfff
    shl r15d,0x4
    mov r14,QWORD PTR [r13+r15*1+0x8]
    mov r12,QWORD PTR [r13+r15*1+0x0]
    mov r15,QWORD PTR [r13+r15*1+0x8]
    cmp r14,0x2
    jb 14
    cmp r15,r14
    jne 14
    shr r12,0x20
    cmp ebx,r12d
    jne 14
    mov QWORD PTR [rdi+0x40],r11
    mov QWORD PTR [rdi+0x48],r14
    mov rbx,QWORD PTR [r14+0x198]
    cmp DWORD PTR [r14+0x190],0x1
    je 4
9:
    mov ebp,DWORD PTR [rbx+0x100]
    movzx r11d,WORD PTR [rbx+0x80]
    movzx r14d,cx
    cmp ebp,r14d
    jne 14
    cmp r11w,cx
    je 14
    mov r11,QWORD PTR [rbx+0x180]
    mov r14d,DWORD PTR [rbx+0x188]
    dec r14d
    and r14d,ecx
    movzx ecx,r14w
    mov r11,QWORD PTR [r11+rcx*8]
    inc ebp
    mov DWORD PTR [rbx+0x100],ebp
10:
    shr r10b,0x4
    or r10b,0x80
11:
    mov ecx,DWORD PTR [rdi+0xd0]
    inc ecx
    mov DWORD PTR [rdi+0xd0],ecx
    mov rbx,QWORD PTR [rdi+0x50]
    add rbx,r9
    cmp rbx,QWORD PTR [rdi+0x88]
    jne 12
    mov rbx,QWORD PTR [rdi+0x80]
    xor BYTE PTR [rdi+0x58],0x1
12:
    mov QWORD PTR [rdi+0x78],rbx
    movzx r14d,r10b
    movzx r10d,BYTE PTR [rsi+r14*4+0x1]
    cmp BYTE PTR [rsi+r14*4],0x1
    je 0
    xor r9d,r9d
    jmp 1
13:
    mov rsi,r8
    xor edx,edx
    jmp 15
14:
    mov rsi,r8
15:
    mov rcx,rax
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    and eax,0x1
    jmp 21
16:
    test rdx,rdx
    je 17
    mov ecx,DWORD PTR [rdi+0xd0]
    jmp 20
17:
    dec DWORD PTR [rdi+0xe0]
    mov eax,0x1
    je 22
18:
    xor edx,edx
    jmp 21
19:
    mov rdx,rax
20:
    mov rax,QWORD PTR [rdi+0xa0]
    mov DWORD PTR [rax+0x2c],ecx
    mov rax,QWORD PTR [rdi+0x98]
    and ecx,0xffffff
    bswap ecx
    mov DWORD PTR [rax],ecx
    mov eax,0x1
21:
    add rsp,0x8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
22:
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    mov eax,0x1
    jmp 18
